"""The cluster as a scheduler would see it now, for commands that say more than objects do: a session of its own.

Decided here: where the picture comes from (a file of `muster snapshot`, else the objects in the API server), and which
pods count as served when nobody says so: those of the scheduler names that are configured, and those that name a group
and are not left to kube-scheduler. From objects, what a scheduler has decided and not written yet is not known; from a
file it is. Nothing that such a session decides is carried out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from scheduler.actions.run import Sessions, decided, new_session
from scheduler.app import load_configuration, make_sessions
from scheduler.cli import reading
from scheduler.cli.kin import Served
from scheduler.cli.manifests import ANY_CLASS, Classes
from scheduler.cli.output import USAGE, complain, note, with_client
from scheduler.cluster import feed
from scheduler.cluster.assembler import Assembler
from scheduler.cluster.bindlines import BadRequest
from scheduler.cluster.client import ApiClient, ApiError, path_of
from scheduler.cluster.store import Store
from scheduler.config import ConfigError, GroupingConfig, SchedulerConfiguration
from scheduler.dialects import budgets, core
from scheduler.framework.registry import BadPlugin
from scheduler.framework.session import Session
from scheduler.model.pods import Pod, Shape
from scheduler.model.snapshot import Snapshot
from scheduler.sim import replay


@dataclass(frozen=True, slots=True)
class Source:
    """Where the picture comes from. file: of `muster snapshot`; config: of `muster run`; names: scheduler names."""

    kubeconfig: str | None = None
    context: str | None = None
    file: Path | None = None
    config: Path | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """A snapshot and the configuration under which it is looked at."""

    snapshot: Snapshot
    config: SchedulerConfiguration

    def session(self) -> Session:
        """Return a session that no action has touched. Raises `BadPlugin`."""
        with redirect_stdout(sys.stderr):
            return new_session(self.snapshot, self.config, self._sessions().cache, "look")

    def decided(self) -> Session:
        """Return a session after all actions. Raises `BadPlugin`."""
        with redirect_stdout(sys.stderr):  # what fails is logged, and stdout holds objects only
            return decided(self.snapshot, self.config, self._sessions().cache, "look")

    def _sessions(self) -> Sessions:
        sessions = make_sessions(self.config)
        assert isinstance(sessions, Sessions)
        return sessions


def with_picture(source: Source, call: Callable[[Picture, str], int]) -> int:
    """Get the picture and hand it on, with the namespace of the context; exit code."""
    try:
        if source.file is not None:
            saved = replay.load(source.file.read_bytes())
            config = load_configuration(source.config) if source.config else saved.config
            return call(Picture(saved.snapshot, config), "default")
        config = load_configuration(source.config)
    except replay.BadSnapshotFile as error:
        complain(f"{source.file}: {error}")
        return USAGE
    except (ConfigError, BadPlugin) as error:
        complain(f"{source.config}: {error}" if source.config else str(error))
        return USAGE
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
        return USAGE

    async def work(client: ApiClient) -> int:
        names = source.names or config.scheduler_names
        snapshot = await read(client, names, guess=not source.names, grouping=config.grouping)
        return call(Picture(snapshot, config), client.credentials.identity.namespace or "default")

    return with_client(source.kubeconfig, source.context, work)


async def read(
    client: ApiClient, names: tuple[str, ...], *, guess: bool, grouping: GroupingConfig = GroupingConfig()
) -> Snapshot:
    """Return the cluster as its objects say it is. names: scheduler names that are served; guess: see the module.

    Raises `ApiError` where nodes, pods, groups or queues may not be read; what else may not be read is told and left
    out.
    """
    store, found, now = Store(), await events(client, names, guess=guess, grouping=grouping), time.time()
    store.apply([*found, feed.Synced()], now)
    return store.snapshot(now, owners=True)


async def events(
    client: ApiClient, names: tuple[str, ...], *, guess: bool, grouping: GroupingConfig = GroupingConfig()
) -> list[feed.Event]:
    """Return what `read` makes its snapshot of."""
    found: list[feed.Event] = [feed.NodeSet(node) for node in await reading.nodes(client)]
    found += [feed.GroupSet(group) for group in await reading.groups(client, None)]
    found += [feed.QueueSet(queue) for queue in await reading.queues(client)]
    for name, queue, labels in await reading.namespaces(client):
        found.append(feed.NamespaceSet(name, queue, labels))
    found += await _lesser(client, "priorities of groups", _priorities)
    found += await _lesser(client, "disruption budgets", _budgets)
    found += served(await reading.pods(client, None, Served(names, guess, grouping)), names, guess=guess)
    found += await _lesser(client, "topologies", reading.wiring)
    found += await _lesser(client, "volumes", reading.storage)
    found += await _lesser(client, "open bind requests", _requests)
    return found


async def classes(client: ApiClient) -> Classes:
    """Return the priority classes; every one is taken to exist where they may not be read, which `events` tells."""
    try:
        found = await _priorities(client)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return ANY_CLASS
    values: dict[str, int] = {}
    for one in found:
        values |= {one.name: one.value} | ({"": one.value} if one.default else {})
    return values


def served(pods: list[tuple[Pod, Shape]], names: tuple[str, ...], *, guess: bool) -> list[feed.Event]:
    """Return the pods as events, those that Muster serves marked."""
    events: list[feed.Event] = [feed.ShapeSet(shape) for shape in {shape.key: shape for _, shape in pods}.values()]
    return events + [feed.PodSet(pod) for pod, _ in marked(pods, names, guess=guess)]


def marked(pods: list[tuple[Pod, Shape]], names: tuple[str, ...], *, guess: bool) -> list[tuple[Pod, Shape]]:
    """Return the pods, those that Muster serves as such."""
    known = Served(names, guess).known(pod for pod, _ in pods)
    return [(replace(pod, ours=pod.scheduler_name in known), shape) for pod, shape in pods]


async def _lesser(
    client: ApiClient, what: str, call: Callable[[ApiClient], Awaitable[Sequence[feed.Event]]]
) -> list[feed.Event]:
    """Return what may be missing without making the rest wrong; a refusal is told."""
    try:
        found = await call(client)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        if error.status == 403:
            note(f"{what} are not looked at: {error}")
        return []
    return list(found)


async def _priorities(client: ApiClient) -> list[feed.PriorityClassSet]:
    raws = await reading.items(client, path_of("scheduling.k8s.io", "v1", "priorityclasses"))
    return [feed.PriorityClassSet(*core.decode_priority_class(raw)) for raw in raws]


async def _budgets(client: ApiClient) -> list[feed.Event]:
    raws = await reading.items(client, path_of("policy", "v1", "poddisruptionbudgets"))
    found: list[feed.Event] = []
    for raw in raws:
        try:
            found.append(feed.BudgetSet(budgets.decode_budget(raw)))
        except core.Undecodable as error:
            complain(str(error))
    return found


async def _raw_requests(client: ApiClient) -> list[msgspec.Raw]:
    """Read them of all namespaces; who may not, those of the scheduler's usual one."""
    where = ("scheduling.muster.sh", "v1alpha1", "bindrequests")
    try:
        return await reading.items(client, path_of(*where))
    except ApiError as error:
        if error.status != 403:
            raise
        return await reading.items(client, path_of(*where, load_configuration(None).namespace))


async def _requests(client: ApiClient) -> list[feed.Event]:
    assembler = Assembler()
    found: dict[str, feed.Event] = {}
    for raw in await _raw_requests(client):
        try:
            request = assembler.offer(bytes(raw))
        except BadRequest as error:
            complain(str(error))
            continue
        if request is not None:
            found[request.name] = feed.RequestSet(request)
    return list(found.values())
