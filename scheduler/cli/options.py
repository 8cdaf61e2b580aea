"""Options that several commands take, each with one name, one meaning and one help text."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer


def _groups(context: typer.Context, incomplete: str) -> list[str]:
    from scheduler.cli.completion import groups

    return groups(context, incomplete)


def _queues(context: typer.Context, incomplete: str) -> list[str]:
    from scheduler.cli.completion import queues

    return queues(context, incomplete)


def _targets(context: typer.Context, incomplete: str) -> list[str]:
    from scheduler.cli.completion import targets

    return targets(context, incomplete)


GroupName = Annotated[str, typer.Argument(help="A group, or a pod that stands alone.", autocompletion=_groups)]
Described = Annotated[
    str, typer.Argument(help="A group or a pod: NAME, NAMESPACE/NAME, group/NAME or pod/NAME.", autocompletion=_groups)
]
Suspendable = Annotated[
    str,
    typer.Argument(help="A group or a queue: NAME, NAMESPACE/NAME, group/NAME or queue/NAME.", autocompletion=_targets),
]
QueueName = Annotated[str | None, typer.Argument(help="One queue.", autocompletion=_queues)]
QueueTree = Annotated[str | None, typer.Argument(help="One queue with all below it.", autocompletion=_queues)]
Kubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="Path of the kubeconfig; default: $KUBECONFIG, in-cluster, ~/.kube.")
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig.")]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; default: that of the context.")]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]


class Output(enum.StrEnum):
    """How objects are printed."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Shell(enum.StrEnum):
    """Shells that are served."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class Told(enum.StrEnum):
    """How one thing is told."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Data(enum.StrEnum):
    """Forms of data."""

    JSON = "json"
    YAML = "yaml"


class StoryName(enum.StrEnum):
    """What `muster demo` plays."""

    GANG = "gang"
    QUEUES = "queues"
    RACKS = "racks"


class Kind(enum.StrEnum):
    """What `muster get` lists."""

    GROUPS = "groups"
    QUEUES = "queues"
    NODES = "nodes"
    REQUESTS = "requests"
    TOPOLOGY = "topology"


SnapshotFile = Annotated[
    Path | None,
    typer.Option("--snapshot", exists=True, dir_okay=False, help="A file of `muster snapshot` instead of the cluster."),
]
ConfigFile = Annotated[Path | None, typer.Option("--config", help="The file of `muster run`; default: the defaults.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--scheduler-name", help="schedulerName that is served; repeat. Default: those of the file, and of gangs."
    ),
]
ToldOption = Annotated[Told, typer.Option("--output", "-o", help="table, json or yaml.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Again and again, until Ctrl-C.")]
Interval = Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between two looks.")]
Level = Annotated[str | None, typer.Option("--level", help="The narrowest level that is shown.")]
Resource = Annotated[
    str | None, typer.Option("--resource", help="What is counted; default: the GPUs of which there are most, else cpu.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table, wide, json, yaml or name.")]
