"""SchedulerConfiguration: what a file may say, its defaults, and the error when it says something else.

Decided here: which keys exist and what values they take. Strict: an unknown key is an error with its path and the
nearest valid name. Whether an action or a plugin of a given name exists is asked from the registries that the caller
passes, so that this module knows neither. Volcano's scheduler.conf (actions, tiers, configurations) loads too.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from scheduler import config_volcano
from scheduler.model.hints import near

API_VERSION = "config.muster.sh/v1alpha1"
KIND = "SchedulerConfiguration"
LOG_FORMATS = ("auto", "json", "console")
"""Those of `observe.logs`."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class ConfigError(ValueError):
    """A configuration that cannot be used: path of the key, what is wrong, nearest valid name."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


@dataclass(frozen=True, slots=True)
class PluginConfig:
    """One plugin of a tier."""

    name: str
    weight: int = 1
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SolverConfig:
    """Budget of one placement search; the deterministic time (solver seconds) decides, the wall limit is a fuse."""

    max_deterministic_time: float = 1.0
    wall_limit: float = 2.0
    workers: int = 1


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """Client side rate limit towards the API server, in requests a second; 0 = no limit."""

    qps: float = 1000.0
    burst: int = 1000


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """Leader election by Lease, in seconds. An empty namespace means that of BindRequests."""

    leader_elect: bool = True
    name: str = "muster"
    namespace: str = ""
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


@dataclass(frozen=True, slots=True)
class BinderConfig:
    """Binds in flight; seconds a gang may take to become whole; finished requests kept for `history` seconds.

    volume_timeout: seconds that the volumes of a gang may take beside that. victim_timeout: likewise the pods that have
    to go for it, beside what they are given to end.
    """

    concurrency: int = 64
    deadline: float = 120.0
    history: float = 60.0
    volume_timeout: float = 600.0
    victim_timeout: float = 300.0


@dataclass(frozen=True, slots=True)
class OwnerKindConfig:
    """A kind whose pods start together: so many of them as the integers at some paths of its spec add up to."""

    group: str
    version: str
    kind: str
    resource: str
    minimum: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupingConfig:
    """Whether PodGroups are made for owners that state none, and kinds of owners beside those that are known."""

    enabled: bool = True
    owners: tuple[OwnerKindConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class SchedulerConfiguration:
    """The whole configuration; every field has the default that `config/default.yaml` shows."""

    scheduler_names: tuple[str, ...] = ("muster",)
    namespace: str = "muster-system"
    session_period: float = 1.0
    resync_period: float = 300.0
    actions: tuple[str, ...] = ("enqueue", "allocate", "reclaim", "preempt", "backfill", "consolidate")
    tiers: tuple[tuple[PluginConfig, ...], ...] = (
        (PluginConfig("priority"), PluginConfig("gang"), PluginConfig("conformance")),
        (
            *(PluginConfig(name) for name in ("queues", "predicates", "hostports", "volumes", "spreading", "interpod")),
            *(PluginConfig(name) for name in ("topology", "nodeorder", "imagelocality", "binpack")),
        ),
    )
    solver: SolverConfig = SolverConfig()
    client_connection: ConnectionConfig = ConnectionConfig()
    leader_election: ElectionConfig = ElectionConfig()
    binder: BinderConfig = BinderConfig()
    grouping: GroupingConfig = GroupingConfig()
    health_address: str = "127.0.0.1:8080"
    log_format: str = "auto"
    seed: int = 0
    warnings: tuple[str, ...] = ()


def parse_duration(path: str, value: object) -> float:
    """Return seconds from a number or from "1s", "500ms", "1m30s". Raises `ConfigError`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    if isinstance(value, str):
        parts = _DURATION.findall(value)
        if parts and "".join(number + unit for number, unit in parts) == value:
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    raise ConfigError(path, f'{value!r} is not a duration (write "1s", "500ms", "1m30s")')


def _at_least_a_second(path: str, value: object) -> float:
    """Return seconds of something that would be done without a pause, or could never be done in time, with less."""
    seconds = parse_duration(path, value)
    if seconds < 1:
        raise ConfigError(path, f"must be at least 1s, is {value!r}")
    return seconds


def _mapping(path: str, value: object, known: Iterable[str]) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError(path, f"must be a mapping, is {'a list' if isinstance(value, list) else repr(value)}")
    keys = list(known)
    for key in value:
        if key not in keys:
            where = f"{path}.{key}" if path else str(key)
            raise ConfigError(where, f'unknown key "{key}"{near(str(key), keys)}')
    return value


def _number(path: str, value: object, *, low: float, high: float = 1e9) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(path, f"must be a number, is {value!r}")
    if not low <= value <= high:
        raise ConfigError(path, f"must be between {low:g} and {high:g}, is {value!r}")
    return float(value)


def _integer(path: str, value: object, *, low: int, high: int = 2**31 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(path, f"must be an integer, is {value!r}")
    return int(_number(path, value, low=low, high=high))


def _text(path: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(path, f"must be a non-empty string, is {value!r}")
    return value


def _object_name(path: str, value: object) -> str:
    text = _text(path, value)
    if not _NAME.fullmatch(text):
        raise ConfigError(path, f"must be a name of lower case letters, digits, '-' and '.', is {value!r}")
    return text


def _choice(path: str, value: object, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ConfigError(path, f"must be one of {', '.join(choices)}, is {value!r}{near(str(value), choices)}")
    return str(value)


def parse_address(path: str, value: object) -> str:
    """Return HOST:PORT, or raise `ConfigError`."""
    text = _text(path, value)
    port = text.rpartition(":")[2]
    if ":" not in text or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ConfigError(path, f"must be HOST:PORT, is {value!r}")
    return text


def _bool(path: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(path, f"must be true or false, is {value!r}")
    return value


def _actions(path: str, value: object, known: Sequence[str], *, volcano: bool, warnings: list[str]) -> tuple[str, ...]:
    names = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(path, 'must be a comma-separated string such as "enqueue, allocate"')
    result: list[str] = []
    for number, name in enumerate(name for name in names if name):
        ours = config_volcano.ACTIONS.get(name, name) if volcano else name
        if ours in known:
            if ours not in result:
                result.append(ours)
        elif volcano and ours in config_volcano.WITHOUT:
            warnings.append(f'{path}[{number}]: action "{name}" is not available in this version and is left out')
        else:
            raise ConfigError(f"{path}[{number}]", f'unknown action "{name}"{near(name, known)}')
    if not result:
        raise ConfigError(path, "names no action")
    return tuple(result)


def _tiers(
    path: str, value: object, known: Sequence[str], *, volcano: bool, warnings: list[str]
) -> tuple[tuple[PluginConfig, ...], ...]:
    if not isinstance(value, list) or not value:
        raise ConfigError(path, "must be a non-empty list of tiers")
    tiers: list[tuple[PluginConfig, ...]] = []
    seen: dict[str, str] = {}
    for i, tier in enumerate(value):
        plugins: list[PluginConfig] = []
        listed = _mapping(f"{path}[{i}]", tier, ["plugins"]).get("plugins", [])
        if not isinstance(listed, list):
            raise ConfigError(f"{path}[{i}].plugins", "must be a list")
        for j, entry in enumerate(listed):
            where = f"{path}[{i}].plugins[{j}]"
            if volcano and isinstance(entry, dict):
                entry = config_volcano.without_switches(entry, where, warnings)
            spec = _mapping(where, entry, ["name", "weight", "arguments"])
            name = _text(f"{where}.name", spec.get("name"))
            ours = config_volcano.PLUGINS.get(name, name) if volcano else name
            if ours not in known:
                if volcano:
                    warnings.append(f'{where}.name: plugin "{name}" has no counterpart here and is left out')
                    continue
                raise ConfigError(f"{where}.name", f'unknown plugin "{name}"{near(name, known)}')
            if ours in seen:
                if volcano:
                    continue
                raise ConfigError(f"{where}.name", f'plugin "{ours}" is already listed at {seen[ours]}')
            seen[ours] = where
            arguments = spec.get("arguments") or {}
            if not isinstance(arguments, dict):
                raise ConfigError(f"{where}.arguments", "must be a mapping")
            weighs = spec.get("weight", 1)
            if volcano:
                weighs = config_volcano.weight(ours, arguments, weighs)
                arguments = config_volcano.arguments(ours, arguments, f"{where}.arguments", warnings)
            weight = _integer(f"{where}.weight", weighs, low=0, high=1_000_000)
            plugins.append(PluginConfig(name=ours, weight=weight, arguments=arguments))
            for more in config_volcano.PARTS.get(ours, ()) if volcano else ():
                if more in known and more not in seen:
                    seen[more] = where
                    plugins.append(PluginConfig(name=more, weight=weight))
        tiers.append(tuple(plugins))
    return tuple(tiers)


def _solver(value: object) -> SolverConfig:
    raw = _mapping("solver", value, ["maxDeterministicTime", "wallLimit", "workers"])
    base = SolverConfig()
    return SolverConfig(
        max_deterministic_time=_number(
            "solver.maxDeterministicTime", raw.get("maxDeterministicTime", base.max_deterministic_time), low=0.001
        ),
        wall_limit=parse_duration("solver.wallLimit", raw.get("wallLimit", base.wall_limit)),
        workers=_integer("solver.workers", raw.get("workers", base.workers), low=1, high=64),
    )


def _connection(value: object) -> ConnectionConfig:
    raw = _mapping("clientConnection", value, ["qps", "burst"])
    base = ConnectionConfig()
    return ConnectionConfig(
        qps=_number("clientConnection.qps", raw.get("qps", base.qps), low=0),
        burst=_integer("clientConnection.burst", raw.get("burst", base.burst), low=0),
    )


def _election(value: object) -> ElectionConfig:
    keys = ["leaderElect", "name", "namespace", "leaseDuration", "renewDeadline", "retryPeriod"]
    raw = _mapping("leaderElection", value, keys)
    base = ElectionConfig()
    made = ElectionConfig(
        leader_elect=_bool("leaderElection.leaderElect", raw.get("leaderElect", base.leader_elect)),
        name=_object_name("leaderElection.name", raw.get("name", base.name)),
        namespace=_object_name("leaderElection.namespace", raw["namespace"])
        if raw.get("namespace")
        else base.namespace,
        lease_duration=parse_duration("leaderElection.leaseDuration", raw.get("leaseDuration", base.lease_duration)),
        renew_deadline=parse_duration("leaderElection.renewDeadline", raw.get("renewDeadline", base.renew_deadline)),
        retry_period=parse_duration("leaderElection.retryPeriod", raw.get("retryPeriod", base.retry_period)),
    )
    if not made.lease_duration > made.renew_deadline > made.retry_period > 0:
        raise ConfigError("leaderElection", "must have leaseDuration > renewDeadline > retryPeriod > 0")
    return made


def _binder(value: object) -> BinderConfig:
    raw = _mapping("binder", value, ["concurrency", "deadline", "history", "volumeTimeout", "victimTimeout"])
    base = BinderConfig()
    return BinderConfig(
        concurrency=_integer("binder.concurrency", raw.get("concurrency", base.concurrency), low=1, high=1024),
        deadline=_at_least_a_second("binder.deadline", raw.get("deadline", base.deadline)),
        history=parse_duration("binder.history", raw.get("history", base.history)),
        volume_timeout=parse_duration("binder.volumeTimeout", raw.get("volumeTimeout", base.volume_timeout)),
        victim_timeout=parse_duration("binder.victimTimeout", raw.get("victimTimeout", base.victim_timeout)),
    )


_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PATH = re.compile(r"spec(\.[A-Za-z0-9_-]+(\[\*\])?)*\.[A-Za-z0-9_-]+")


def _grouping(value: object) -> GroupingConfig:
    raw = _mapping("grouping", value, ["enabled", "owners"])
    base = GroupingConfig()
    owners = raw.get("owners") or []
    if not isinstance(owners, list):
        raise ConfigError("grouping.owners", "must be a list")
    found = tuple(_owner_kind(f"grouping.owners[{i}]", one) for i, one in enumerate(owners))
    return GroupingConfig(enabled=_bool("grouping.enabled", raw.get("enabled", base.enabled)), owners=found)


def _owner_kind(where: str, value: object) -> OwnerKindConfig:
    raw = _mapping(where, value, ["apiVersion", "kind", "resource", "minimum"])
    group, _, version = _text(f"{where}.apiVersion", raw.get("apiVersion")).rpartition("/")
    paths = raw.get("minimum")
    if not isinstance(paths, list) or not paths:
        raise ConfigError(f"{where}.minimum", 'must be a non-empty list of paths such as "spec.replicas"')
    for i, path in enumerate(paths):
        if not _PATH.fullmatch(_text(f"{where}.minimum[{i}]", path)):
            wish = 'must be a path of a number such as "spec.replicas" or "spec.roles[*].replicas"'
            raise ConfigError(f"{where}.minimum[{i}]", f"{wish}, is {path!r}")
    return OwnerKindConfig(
        group=group,
        version=version,
        kind=_text(f"{where}.kind", raw.get("kind")),
        resource=_text(f"{where}.resource", raw.get("resource")),
        minimum=tuple(paths),
    )


KEYS = (
    "apiVersion",
    "kind",
    "schedulerNames",
    "namespace",
    "sessionPeriod",
    "resyncPeriod",
    "actions",
    "tiers",
    "solver",
    "clientConnection",
    "leaderElection",
    "binder",
    "grouping",
    "healthAddress",
    "logFormat",
    "seed",
)


def parse(document: object, *, actions: Sequence[str], plugins: Sequence[str]) -> SchedulerConfiguration:
    """Return the configuration that a decoded YAML document states; absent keys have their defaults.

    actions, plugins: the names that exist. Raises `ConfigError` with the path of the first key that is wrong. A
    document without apiVersion that has tiers is read as Volcano's; what has no counterpart is listed in `warnings`.
    """
    volcano = isinstance(document, dict) and "apiVersion" not in document and "tiers" in document
    raw = _mapping("", document, ("actions", "tiers", "configurations", "metrics") if volcano else KEYS)
    if not volcano and raw:
        if raw.get("apiVersion") != API_VERSION:
            raise ConfigError("apiVersion", f'must be "{API_VERSION}", is {raw.get("apiVersion")!r}')
        if raw.get("kind") != KIND:
            raise ConfigError("kind", f'must be "{KIND}", is {raw.get("kind")!r}')
    base = SchedulerConfiguration()
    warnings: list[str] = []
    without = [key for key in ("configurations", "metrics") if volcano and raw.get(key)]
    warnings += [f"{key}: left out, it has no counterpart here" for key in without]
    names = raw.get("schedulerNames", ["volcano", "muster"] if volcano else list(base.scheduler_names))
    if not isinstance(names, list) or not names:
        raise ConfigError("schedulerNames", "must be a non-empty list")
    if "default-scheduler" in names:
        warnings.append(
            "schedulerNames: default-scheduler is kube-scheduler's; two of one name fight over the same pods"
        )
    return SchedulerConfiguration(
        scheduler_names=tuple(_text(f"schedulerNames[{i}]", name) for i, name in enumerate(names)),
        namespace=_object_name("namespace", raw.get("namespace", base.namespace)),
        session_period=parse_duration("sessionPeriod", raw.get("sessionPeriod", base.session_period)),
        resync_period=_at_least_a_second("resyncPeriod", raw.get("resyncPeriod", base.resync_period)),
        actions=_actions("actions", raw["actions"], actions, volcano=volcano, warnings=warnings)
        if "actions" in raw
        else base.actions,
        tiers=_tiers("tiers", raw["tiers"], plugins, volcano=volcano, warnings=warnings)
        if "tiers" in raw
        else base.tiers,
        solver=_solver(raw.get("solver")),
        client_connection=_connection(raw.get("clientConnection")),
        leader_election=_election(raw.get("leaderElection")),
        binder=_binder(raw.get("binder")),
        grouping=_grouping(raw.get("grouping")),
        health_address=parse_address("healthAddress", raw.get("healthAddress", base.health_address)),
        log_format=_choice("logFormat", raw.get("logFormat", base.log_format), LOG_FORMATS),
        seed=_integer("seed", raw.get("seed", base.seed), low=0),
        warnings=tuple(warnings),
    )


def read(path: Path) -> object:
    """Read a file, to be parsed. Raises `ConfigError`, naming the file when it cannot be read or is not YAML."""
    try:
        return document(path.read_bytes())
    except OSError as error:
        raise ConfigError("", f"{path}: {error.strerror}") from error
    except ConfigError as error:
        raise ConfigError("", f"{path}: {error}") from error


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice: which of the two would hold is nobody's guess."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping. Raises `yaml.constructor.ConstructorError`, naming key and line."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    problem = f"the key {key.value!r} is written twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def document(content: bytes) -> object:
    """Return what a file says, to be parsed. Raises `ConfigError` for anything that is not YAML in UTF-8, or empty.

    Of a ConfigMap with one entry it is what that entry says, because that is how it is copied from a cluster. YAML
    refuses a date or a number that it takes for one and that does not exist (`2001-99-99`) by a plain ValueError.
    """
    try:
        found = yaml.load(content.decode(), _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError("", f"not YAML: {error}") from error
    if found is None or found == {}:  # seen while it is written; all defaults would be a change that nobody asked for
        raise ConfigError("", f"it is empty; it must say at least apiVersion: {API_VERSION} and kind: {KIND}")
    if not isinstance(found, dict) or found.get("kind") != "ConfigMap":
        return found
    entries = found.get("data")
    if not isinstance(entries, dict) or len(entries) != 1 or not isinstance(next(iter(entries.values())), str):
        raise ConfigError("data", "a ConfigMap must have one entry, the text of a configuration")
    return document(next(iter(entries.values())).encode())
