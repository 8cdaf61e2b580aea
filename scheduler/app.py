"""The composition root: the only file that knows every other package.

Decided here: which parts a process runs and how they are joined, in which order they start (caches, then the lease,
then sessions and the binder), and what ends the process (a lost lease, a dead brain, a signal). No policy lives here.

`muster run` is two processes: this one (io: reflectors, lease, writes, binder, ports) and the brain, which is started
from here and decides. `--single-process` runs the brain as a thread.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from scheduler import config as configuration
from scheduler.config import ConfigError, SchedulerConfiguration

if TYPE_CHECKING:  # both processes import what they need when they need it: start-up is on the way to the first bind
    import socket
    import subprocess

    from scheduler.framework.session import Session
    from scheduler.loop import Sessions
    from scheduler.web.asking import Desk

log = structlog.get_logger("muster.app")

_POLICIES = frozenset({"actions", "tiers"})
"""Keys that name actions and plugins: only to check these does the io process import what decides."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The command line of `muster run`; None leaves what the configuration file says."""

    kubeconfig: str | None = None
    context: str | None = None
    config: Path | None = None
    scheduler_names: tuple[str, ...] = ()
    leader_elect: bool | None = None
    single_process: bool = False
    namespace: str | None = None
    session_period: str | None = None
    health_address: str | None = None
    only: tuple[str, ...] = ()
    """Components (`model.components.Component`) that this process runs; none: all."""


# -- configuration ----------------------------------------------------------------------------------------------------


def _registry() -> Any:
    import plugins

    return plugins.built_in().with_entry_points()


def load_configuration(file: Path | None, *, content: bytes | None = None) -> SchedulerConfiguration:
    """Read a configuration; the plugins that it names are made once, so that their arguments are checked too.

    Raises `ConfigError` with the path of the key.
    """
    if content is not None:
        document = configuration.document(content)
    else:
        document = configuration.read(file) if file is not None else {}
    if not isinstance(document, dict) or _POLICIES.isdisjoint(document):
        return configuration.parse(document, actions=(), plugins=())
    from scheduler.actions.run import ACTIONS
    from scheduler.framework.registry import BadPlugin

    registry = _registry()
    config = configuration.parse(document, actions=tuple(ACTIONS), plugins=registry.names())
    try:
        registry.build(config.tiers)
    except BadPlugin as error:
        raise ConfigError("", str(error)) from error
    return config


def with_options(config: SchedulerConfiguration, options: RunOptions) -> SchedulerConfiguration:
    changes: dict[str, Any] = {}
    if options.scheduler_names:
        changes["scheduler_names"] = options.scheduler_names
    if options.leader_elect is not None:
        changes["leader_election"] = replace(config.leader_election, leader_elect=options.leader_elect)
    if options.namespace:
        changes["namespace"] = options.namespace
    if options.session_period:
        changes["session_period"] = configuration.parse_duration("--session-period", options.session_period)
    if options.health_address:
        changes["health_address"] = configuration.parse_address("--health-address", options.health_address)
    return replace(config, **changes)


# -- the brain --------------------------------------------------------------------------------------------------------


def make_sessions(config: SchedulerConfiguration) -> Sessions:
    """Return what runs sessions under a configuration, with empty caches. Raises `BadPlugin`."""
    from scheduler.actions.run import Sessions as Made

    registry = _registry()
    for problem in registry.problems:
        log.error("plugin_left_out", problem=problem)
    return Made(config, registry)


class Describer:
    """Answers what the page asks about a session; what is needed for it is imported when somebody first looks."""

    def __init__(self) -> None:
        self._desk: Desk | None = None

    def __call__(self, session: Session, actions: Sequence[str], view: str, arguments: Mapping[str, str]) -> bytes:
        if self._desk is None:
            from scheduler.web.asking import Desk

            self._desk = Desk()
        return self._desk.answer(session, actions, view, arguments)


def parse_saved(data: bytes) -> SchedulerConfiguration:
    return msgspec.json.decode(data, type=SchedulerConfiguration)


def run_brain(descriptor: int) -> int:
    """Decide until the io process is gone; the configuration comes on standard input. Exit code."""
    import gc

    from scheduler.cluster.link import BrainLink
    from scheduler.loop import Loop
    from scheduler.observe import logs

    config: SchedulerConfiguration = parse_saved(sys.stdin.buffer.read())
    logs.configure(config.log_format, process="brain")
    for number in (signal.SIGTERM, signal.SIGINT):  # they may reach the whole group; the io process ends us in order
        signal.signal(number, signal.SIG_IGN)
    link = BrainLink.from_descriptor(descriptor)
    gc.set_threshold(50_000, 20, 50)
    Loop(link, config, make_sessions, parse_saved, when_idle=_warm_up, describe=Describer()).run()
    return 0


def _warm_up() -> None:
    """Import the solver once there is time for it; a gang that needs it earlier waits for the import."""
    from scheduler import placement

    placement.warm_up()


@dataclass(frozen=True, slots=True)
class BrainProcess:
    """The deciding process and our end of the line to it."""

    process: subprocess.Popen[bytes]
    line: socket.socket


def start_brain(config: SchedulerConfiguration) -> BrainProcess:
    """Start the deciding process; it imports and waits while the caller goes on."""
    import subprocess

    from scheduler.cluster.link import socket_pair

    ours, theirs = socket_pair()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "scheduler", "brain", "--fd", str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
        )
    finally:
        theirs.close()
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(config))
    process.stdin.close()
    return BrainProcess(process, ours)


# -- the io process ---------------------------------------------------------------------------------------------------

_M_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024


def _give_back_what_is_large() -> None:
    """Have large blocks of memory given back to the system when they are freed.

    The buffers of TLS connections have 64 to 256 KiB and come and go; glibc takes to keeping such blocks on the heap
    once one was freed, and around what outlives them the heap grows, by a MiB for every 200 gangs. Elsewhere than on
    glibc there is nothing to be set.
    """
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE)


def run_scheduler(options: RunOptions, *, stop: threading.Event | None = None) -> int:
    """Run until a signal (0), a lost lease or a dead part (1), or a wrong configuration (2).

    stop: set by a caller that runs this in a thread, instead of a signal.
    """
    from scheduler.observe import logs

    try:
        config = with_options(load_configuration(options.config), options)
    except ConfigError as error:
        where, said = f"{options.config or 'command line'}: ", str(error)
        sys.stderr.write(f"error: {where}{said.removeprefix(where)}\n")
        return 2
    if options.only and not config.leader_election.leader_elect:
        sys.stderr.write("error: --only needs leader election: the components tell by leases which of them act\n")
        return 2
    logs.configure(config.log_format)
    for warning in config.warnings:
        log.warning("configuration", problem=warning)
    decides = not options.only or "scheduler" in options.only
    brain = start_brain(config) if decides and not options.single_process else None  # it imports while we do

    _give_back_what_is_large()

    import uvloop

    from scheduler.cluster.auth import AuthError
    from scheduler.io_process import IoProcess

    try:
        return uvloop.run(IoProcess(config, options, stop, brain).run())
    except AuthError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    finally:
        if brain is not None:
            brain.line.close()
