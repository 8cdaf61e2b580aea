"""The commands, their options and exit codes; what they do lives in the modules beside this one and in app.

Exit codes: 0 done; 1 it failed (message on stderr); 2 wrong usage or configuration; 3 the object was not found; 4 the
API server could not be reached. What can be typed behind `config` is in `main_config`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scheduler.cli.main_config import config_app
from scheduler.cli.options import (
    AllNamespaces,
    ConfigFile,
    Context,
    Data,
    Described,
    GroupName,
    Interval,
    Kind,
    Kubeconfig,
    Level,
    Names,
    Namespace,
    Output,
    OutputOption,
    QueueName,
    QueueTree,
    Resource,
    Shell,
    SnapshotFile,
    StoryName,
    Suspendable,
    Told,
    ToldOption,
    Watch,
)
from scheduler.model.components import Component

if TYPE_CHECKING:
    from scheduler.cli.picture import Source

app = typer.Typer(
    name="muster",
    help="Gang scheduler for Kubernetes: a gang starts whole or not at all, with the reason in numbers.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(config_app, name="config")


@app.command()
def run(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    config: Annotated[Path | None, typer.Option("--config", help="SchedulerConfiguration file.")] = None,
    scheduler_name: Annotated[
        list[str] | None, typer.Option("--scheduler-name", help="schedulerName to serve; repeat; overrides the file.")
    ] = None,
    leader_elect: Annotated[
        bool | None,
        typer.Option("--leader-elect/--no-leader-elect", help="Elect a leader by Lease; overrides the file."),
    ] = None,
    single_process: Annotated[
        bool, typer.Option("--single-process", help="Decide in a thread of the io process (demo and tests).")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace of BindRequests and the lease.")
    ] = None,
    session_period: Annotated[str | None, typer.Option("--session-period", help="Overrides the file.")] = None,
    health_address: Annotated[
        str | None, typer.Option("--health-address", help="HOST:PORT of health, metrics and debug; port 0 = any.")
    ] = None,
    only: Annotated[
        list[Component] | None, typer.Option("--only", help="Run this component only, by a lease of its own; repeat.")
    ] = None,
) -> None:
    """Run the scheduler until it is stopped."""
    from scheduler.app import RunOptions, run_scheduler

    raise typer.Exit(
        run_scheduler(
            RunOptions(
                kubeconfig=kubeconfig,
                context=context,
                config=config,
                scheduler_names=tuple(scheduler_name or ()),
                leader_elect=leader_elect,
                single_process=single_process,
                namespace=namespace,
                session_period=session_period,
                health_address=health_address,
                only=tuple(one.value for one in only or ()),
            )
        )
    )


@app.command(hidden=True)
def brain(fd: Annotated[int, typer.Option("--fd", help="Inherited socket of the io process.")]) -> None:
    """Run the deciding process; started by `muster run`."""
    from scheduler.app import run_brain

    raise typer.Exit(run_brain(fd))


@app.command()
def demo(
    story: Annotated[
        StoryName, typer.Option("--story", help="gang; queues: three teams on 8 GPUs; racks: two racks.")
    ] = StoryName.GANG,
) -> None:
    """Play a story on an embedded control plane; the exit status says whether the story held."""
    from scheduler.cli.demo import play

    raise typer.Exit(play(story.value))


@app.command()
def playground(
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="Number of fake nodes.")] = 4,
    gpus: Annotated[int, typer.Option("--gpus-per-node", min=0, help="GPUs of each node.")] = 2,
    resource: Annotated[str, typer.Option("--resource", help="Name of the GPU resource.")] = "example.com/gpu",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port of the API; 0 = any free one.")] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option("--write-kubeconfig", help="Where to write the kubeconfig.")
    ] = None,
) -> None:
    """Start an embedded control plane with fake nodes; prints its kubeconfig. Stop with Ctrl-C."""
    from scheduler.cli.play import serve_playground

    raise typer.Exit(serve_playground(nodes=nodes, gpus=gpus, resource=resource, port=port, kubeconfig=kubeconfig))


@app.command()
def get(
    kind: Annotated[Kind, typer.Argument(help="groups, queues, nodes, requests or topology.")],
    name: Annotated[str | None, typer.Argument(help="One object.")] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: OutputOption = Output.TABLE,
    level: Level = None,
    resource: Resource = None,
    file: SnapshotFile = None,
    config: ConfigFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """List groups, queues, nodes, bind requests or topologies, whatever dialect they are written in."""
    if kind is Kind.TOPOLOGY:
        from scheduler.cli.picture import Source
        from scheduler.cli.topology import show

        raise typer.Exit(show(name, level, resource, Source(kubeconfig, context, file, config), output.value))
    for option, value in (("--level", level), ("--resource", resource), ("--snapshot", file)):
        if value is not None:
            raise typer.BadParameter(f"{option} is for `get topology`")
    if config is not None and kind not in (Kind.GROUPS, Kind.QUEUES):
        raise typer.BadParameter("--config is for groups, queues and topology")
    from scheduler.cli.get import list_objects

    raise typer.Exit(
        list_objects(
            kind.value,
            name,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            all_namespaces=all_namespaces,
            output=output.value,
            config=config,
        )
    )


@app.command()
def why(
    target: Described,
    namespace: Namespace = None,
    by_node: Annotated[bool, typer.Option("--nodes", help="Also what each node says to one more such pod.")] = False,
    output: ToldOption = Told.TABLE,
    config: ConfigFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say why a pod or a gang waits, in numbers."""
    from scheduler.cli.why import explain

    raise typer.Exit(
        explain(
            target,
            kubeconfig=kubeconfig,
            context=context,
            namespace=namespace,
            output=output.value,
            by_node=by_node,
            config=config,
        )
    )


def _source(
    kubeconfig: str | None, context: str | None, file: Path | None, config: Path | None, names: list[str] | None
) -> Source:
    """Where a command that looks at the whole cluster takes its picture from."""
    from scheduler.cli.picture import Source

    return Source(kubeconfig, context, file, config, tuple(names or ()))


@app.command()
def simulate(
    files: Annotated[
        list[Path], typer.Option("--filename", "-f", help="Manifests of the gang, - for standard input; repeat.")
    ],
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=10000, help="So many nodes more, like --template.")] = 0,
    template: Annotated[str, typer.Option("--template", help="Name of the node that the added ones are like.")] = "",
    namespace: Namespace = None,
    output: Annotated[Told, typer.Option("--output", "-o", help="table, json or yaml.")] = Told.TABLE,
    config: ConfigFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say whether a gang would run now, where, whom it would evict, and what would help; nothing is created."""
    from scheduler.cli.simulate import Question
    from scheduler.cli.simulate import simulate as ask

    if bool(nodes) != bool(template):
        raise typer.BadParameter("--nodes and --template go together")
    question = Question(tuple(files), nodes, template, namespace)
    raise typer.Exit(ask(question, kubeconfig=kubeconfig, context=context, config=config, output=output.value))


@app.command()
def lint(
    files: Annotated[list[Path], typer.Option("--filename", "-f", help="Manifests, - for standard input; repeat.")],
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Also hold them against queues, classes and rules of the cluster.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for warnings too.")] = False,
    namespace: Namespace = None,
    output: ToldOption = Told.TABLE,
    config: ConfigFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Say what is wrong with manifests, and which gangs they form; nothing is created."""
    from scheduler.cli.lint import lint as ask

    raise typer.Exit(
        ask(
            files,
            cluster=cluster,
            strict=strict,
            config=config,
            namespace=namespace,
            kubeconfig=kubeconfig,
            context=context,
            output=output.value,
        )
    )


@app.command()
def share(
    queue: QueueTree = None,
    output: ToldOption = Told.TABLE,
    file: SnapshotFile = None,
    config: ConfigFile = None,
    scheduler_name: Names = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show how the cluster is divided: what each queue is owed, holds and borrows, and what its past changes."""
    from scheduler.cli.share import show

    raise typer.Exit(show(queue, _source(kubeconfig, context, file, config, scheduler_name), output.value))


@app.command()
def prio(
    group: GroupName,
    namespace: Namespace = None,
    output: ToldOption = Told.TABLE,
    file: SnapshotFile = None,
    config: ConfigFile = None,
    scheduler_name: Names = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show a waiting group's place in the order, what decides it, and who is ahead."""
    from scheduler.cli.prio import show

    source = _source(kubeconfig, context, file, config, scheduler_name)
    raise typer.Exit(show(group, namespace, source, output.value))


@app.command()
def queue(
    queue: QueueName = None,
    output: OutputOption = Output.TABLE,
    watch: Watch = False,
    interval: Interval = 5.0,
    file: SnapshotFile = None,
    config: ConfigFile = None,
    scheduler_name: Names = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show who waits, in order: place, who is directly ahead, priority, size, age and a short reason."""
    from scheduler.cli.live import again
    from scheduler.cli.queue import show

    source = _source(kubeconfig, context, file, config, scheduler_name)
    if not watch:
        raise typer.Exit(show(queue, source, output.value))
    raise typer.Exit(again(lambda: show(queue, source, output.value), interval))


@app.command()
def nodes(
    by: Annotated[
        str | None, typer.Option("--by", help="Sum up by a level of a topology (rack) or a label of nodes.")
    ] = None,
    resource: Resource = None,
    output: OutputOption = Output.TABLE,
    file: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show what nodes have, what is free in which pieces, and which gangs are there."""
    from scheduler.cli.nodes import show
    from scheduler.cli.picture import Source

    raise typer.Exit(show(by, resource, Source(kubeconfig, context, file), output.value))


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Look once, over one interval.")] = False,
    interval: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")] = 2.0,
    address: Annotated[
        str, typer.Option("--address", help="HOST:PORT of a scheduler's health port.")
    ] = "127.0.0.1:8080",
    pool: Annotated[
        str | None, typer.Option("--pool", help="Label of nodes that tells pools apart; default: a well-known one.")
    ] = None,
    resource: Resource = None,
    output: ToldOption = Told.TABLE,
    config: ConfigFile = None,
    scheduler_name: Names = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Show how the scheduler does and how pools and queues are used, until Ctrl-C."""
    from scheduler.cli.top import show

    source = _source(kubeconfig, context, None, config, scheduler_name)
    raise typer.Exit(
        show(source, address, resource=resource, pool=pool, once=once, interval=interval, output=output.value)
    )


@app.command()
def suspend(
    target: Suspendable,
    namespace: Namespace = None,
    drain: Annotated[bool, typer.Option("--drain", help="Of a queue: what runs in it is evicted too.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let nothing of a group, or in a queue, start until it is resumed; what runs goes on."""
    from scheduler.cli.suspend import suspend as ask

    raise typer.Exit(ask(target, namespace, kubeconfig, context, drain=drain))


@app.command()
def resume(
    target: Suspendable,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Let a suspended group, or a queue on hold, start again."""
    from scheduler.cli.suspend import resume as ask

    raise typer.Exit(ask(target, namespace, kubeconfig, context))


@app.command()
def topology(
    plot: Annotated[Path, typer.Option("--plot", help="File to write, .svg or .png.", dir_okay=False)],
    name: Annotated[str | None, typer.Argument(help="Which one, where there are several.")] = None,
    level: Level = None,
    resource: Resource = None,
    file: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Draw a topology: a box for each domain, a square for each node, the darker the less is free there."""
    from scheduler.cli.picture import Source
    from scheduler.cli.topology import plot as draw

    raise typer.Exit(draw(name, level, resource, Source(kubeconfig, context, file), plot))


@app.command()
def snapshot(
    address: Annotated[
        str, typer.Option("--address", help="HOST:PORT of a scheduler's health port.")
    ] = "127.0.0.1:8080",
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write.")] = Path("muster-snapshot.zip"),
) -> None:
    """Save what the scheduler sees to a file that `muster replay` reads."""
    from scheduler.cli.snapshots import save

    raise typer.Exit(save(address, output))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A file of `muster snapshot`.")],
    config: Annotated[
        Path | None, typer.Option("--config", help="Decide with this configuration instead of the saved one.")
    ] = None,
    output: Annotated[Data, typer.Option("--output", "-o", help="json or yaml.")] = Data.YAML,
) -> None:
    """Run one session on a saved snapshot, offline, and print its decisions."""
    from scheduler.cli.snapshots import run_again

    raise typer.Exit(run_again(file, config, output.value))


@app.command()
def convert(
    files: Annotated[list[Path], typer.Argument(help="Manifests, - for standard input; lists too.")],
) -> None:
    """Print queues of Volcano, KAI and Kueue as queues of Muster."""
    from scheduler.cli.convert import convert as convert_files

    raise typer.Exit(convert_files(files))


@app.command()
def adopt(
    namespace: Annotated[str, typer.Argument(help="A namespace whose new pods are to be Muster's.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this it is only told.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take it back: new pods are kube-scheduler's again.")] = False,
    config: ConfigFile = None,
    output: ToldOption = Told.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Tell what would change if a namespace became Muster's, and with --yes do it; pods that exist are not touched."""
    from scheduler.cli.adopt import adopt as ask

    raise typer.Exit(
        ask(
            namespace,
            yes=yes,
            undo=undo,
            config=config,
            kubeconfig=kubeconfig,
            context=context,
            output=output.value,
        )
    )


@app.command()
def completion(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.")]) -> None:
    """Print what a shell reads to complete commands, options and names: source <(muster completion bash)."""
    from scheduler.cli.completion import script

    script(shell.value)


@app.command()
def version() -> None:
    """Print the version."""
    from scheduler import __version__

    print(f"muster {__version__}")
