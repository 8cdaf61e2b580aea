"""Which plugins exist, and how configured tiers become plugin objects.

Decided here: names are unique, arguments are read strictly (an unknown or unusable argument is an error that names its
path and the nearest valid one), and other distributions add plugins by the entry point group `muster.plugins`. Knows no
plugin: the factories are handed in. A distribution that cannot be loaded is reported, never silently left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeAlias

from scheduler.framework.protocols import HOOKS, Plugin
from scheduler.model.hints import near

ENTRY_POINT_GROUP = "muster.plugins"


class BadPlugin(ValueError):
    """A plugin that cannot be used as configured; `path` is the place in the configuration."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class PluginSpec(Protocol):
    """One configured plugin (`scheduler.config.PluginConfig` is one)."""

    @property
    def name(self) -> str:
        """Name in the registry."""

    @property
    def weight(self) -> int:
        """Multiplies the plugin's scores."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """As written in the configuration."""


Tiers: TypeAlias = tuple[tuple[PluginSpec, ...], ...]


class Arguments:
    """A plugin's arguments, read strictly: each getter takes one, `finish` refuses what nobody took."""

    def __init__(self, values: Mapping[str, Any], path: str = "arguments") -> None:
        self._values = dict(values)
        self._path = path
        self._taken: list[str] = []

    def _take(self, name: str, default: Any) -> Any:
        self._taken.append(name)
        return self._values.get(name, default)

    def integer(self, name: str, default: int, *, low: int = 0, high: int = 1_000_000) -> int:
        """Return an integer argument within bounds. Raises `BadPlugin`."""
        value = self._take(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise BadPlugin(f"{self._path}.{name}", f"must be an integer from {low} to {high}, is {value!r}")
        return value

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Return one of the choices. Raises `BadPlugin`."""
        value = self._take(name, default)
        if value not in choices:
            raise BadPlugin(
                f"{self._path}.{name}", f"must be one of {', '.join(choices)}, is {value!r}{near(str(value), choices)}"
            )
        return str(value)

    def texts(self, name: str, default: Sequence[str] = ()) -> tuple[str, ...]:
        """Return a list of strings. Raises `BadPlugin`."""
        value = self._take(name, list(default))
        if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) and item for item in value):
            raise BadPlugin(f"{self._path}.{name}", f"must be a list of non-empty strings, is {value!r}")
        return tuple(value)

    def remaining_integers(
        self, *, is_name: Callable[[str], bool], low: int = 0, high: int = 1_000_000
    ) -> dict[str, int]:
        """Return all arguments not yet taken whose name passes `is_name` (resource names, say) as integers."""
        rest = [name for name in self._values if name not in self._taken and is_name(name)]
        return {name: self.integer(name, 0, low=low, high=high) for name in sorted(rest)}

    def refuse(self, name: str, message: str) -> BadPlugin:
        """Return the error to raise about an argument, with its whole path."""
        return BadPlugin(f"{self._path}.{name}", message)

    def finish(self) -> None:
        """Raise `BadPlugin` when an argument was given that the plugin does not know."""
        for name in self._values:
            if name not in self._taken:
                raise BadPlugin(f"{self._path}.{name}", f'unknown argument "{name}"{near(str(name), self._taken)}')


PluginFactory: TypeAlias = Callable[[Arguments], Plugin]


@dataclass(frozen=True, slots=True)
class Configured:
    """A plugin object with its weight, as the session uses it."""

    plugin: Plugin
    weight: int = 1

    @property
    def volatile(self) -> bool:
        """Whether its answers may change although nothing in the snapshot did."""
        return bool(getattr(self.plugin, "volatile", False))


class Registry:
    """Names of plugins and how to make them."""

    def __init__(self, factories: Mapping[str, PluginFactory], problems: Sequence[str] = ()) -> None:
        self._factories = dict(factories)
        self.problems = tuple(problems)
        """Distributions whose plugins could not be loaded, one sentence each; to be shown where the process starts."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all plugins, sorted."""
        return tuple(sorted(self._factories))

    def with_entry_points(self, path: Sequence[str] | None = None) -> Registry:
        """Return a registry that also has the plugins of installed distributions.

        path: directories to search instead of sys.path. A name that is already taken, or a module that cannot be
        imported, is left out and described in `problems`; configuring it is then an error.
        """
        factories, problems = dict(self._factories), list(self.problems)
        for point in sorted(_entry_points(path), key=lambda point: (point.name, point.value)):
            if point.name in factories:
                problems.append(f'plugin "{point.name}" of {point.value} is left out: the name is taken')
                continue
            try:
                factory = point.load()
            except Exception as error:  # noqa: BLE001 - foreign code may raise anything; reported, and only it is lost
                problems.append(f'plugin "{point.name}" of {point.value} cannot be loaded: {error!r}')
                continue
            if not callable(factory):
                problems.append(f'plugin "{point.name}" of {point.value} is left out: it is not callable')
                continue
            factories[point.name] = factory
        return Registry(factories, problems)

    def build(self, tiers: Tiers) -> tuple[tuple[Configured, ...], ...]:
        """Make the plugins of all tiers. Raises `BadPlugin` for the first that is unknown or cannot be made."""
        return tuple(
            tuple(self._make(spec, f"tiers[{i}].plugins[{j}]") for j, spec in enumerate(tier))
            for i, tier in enumerate(tiers)
        )

    def _make(self, spec: PluginSpec, path: str) -> Configured:
        factory = self._factories.get(spec.name)
        if factory is None:
            raise BadPlugin(f"{path}.name", f'unknown plugin "{spec.name}"{near(spec.name, self._factories)}')
        arguments = Arguments(spec.arguments, f"{path}.arguments")
        try:
            plugin = factory(arguments)
        except BadPlugin:
            raise
        except Exception as error:
            raise BadPlugin(path, f'plugin "{spec.name}" cannot be made: {error!r}') from error
        arguments.finish()
        if not any(callable(getattr(plugin, hook, None)) for hook in HOOKS):
            raise BadPlugin(path, f'plugin "{spec.name}" has none of the hooks {", ".join(HOOKS)}')
        return Configured(plugin=plugin, weight=spec.weight)


def _entry_points(path: Sequence[str] | None) -> list[Any]:
    if path is None:
        return list(entry_points(group=ENTRY_POINT_GROUP))
    from importlib.metadata import distributions

    return [
        point
        for distribution in distributions(path=list(path))
        for point in distribution.entry_points
        if point.group == ENTRY_POINT_GROUP
    ]
