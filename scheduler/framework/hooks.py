"""How the answers of all plugins become one answer, hook by hook.

Decided here: keys are concatenated in the order of the tiers, the first verdict or misfit wins, scores are summed with
their weights, wishes add up, and opinions on victims are intersected. A hook that raises surfaces as `HookRaised`,
which names the plugin; the session confines it to the group, queue or shape that was asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.protocols import HOOKS, KEEPS, Misfit, NoOpinion, Only, Opinion, SortKey, Unusable, View, Wish
from scheduler.framework.registry import Configured
from scheduler.framework.relations import NO_RELATIONS, Members, Relations, Scored, combined
from scheduler.framework.usage import FairShare
from scheduler.model.groups import GroupState
from scheduler.model.nodes import NodeClass
from scheduler.model.pods import Pod, Shape
from scheduler.model.podvolumes import VolumeStep
from scheduler.model.queues import Queue
from scheduler.model.resources import Amounts
from scheduler.model.verdict import Verdict

WholeKey: TypeAlias = tuple[tuple[bool, int | float | str], ...]
"""Keys of all plugins, each part marked with whether it is text, so that any two compare."""


class HookRaised(Exception):
    """A plugin raised. Carries which one, in which hook, and what."""

    def __init__(self, plugin: str, hook: str, error: Exception) -> None:
        super().__init__(f"plugin {plugin} raised in {hook}: {error!r}")
        self.plugin, self.hook, self.error = plugin, hook, error


class _Hook:
    __slots__ = ("call", "hook", "plugin", "weight")

    def __init__(self, configured: Configured, hook: str, call: Callable[..., Any]) -> None:
        self.plugin, self.weight, self.hook, self.call = configured.plugin.name, configured.weight, hook, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.call(*args, **kwargs)
        except Exception as error:
            raise HookRaised(self.plugin, self.hook, error) from error

    def wrong(self, answer: object, expected: str) -> HookRaised:
        return HookRaised(self.plugin, self.hook, TypeError(f"answered {answer!r} instead of {expected}"))


class Hooks:
    """All plugins of a configuration, asked as one."""

    def __init__(self, tiers: Iterable[Iterable[Configured]]) -> None:
        plugins = [configured for tier in tiers for configured in tier]
        self.names = tuple(configured.plugin.name for configured in plugins)
        self.volatile = any(configured.volatile for configured in plugins)
        self.spreads = any(configured.weight and getattr(configured.plugin, "spreads", False) for configured in plugins)
        """Whether members of one gang are to be laid out evenly instead of on few nodes."""
        self.counts_owners = any(getattr(configured.plugin, "counts_owners", False) for configured in plugins)
        """Whether a plugin wants `Snapshot.owners`."""
        shares = (getattr(one.plugin, "fair_share", None) for one in plugins)
        self.fair_share: FairShare = next((share for share in shares if share is not None), FairShare())
        """How past usage of queues counts."""
        self.unkept = frozenset(KEEPS).difference(*(getattr(one.plugin, "keeps", ()) for one in plugins))
        """Rules of pod specs that no plugin of the configuration keeps."""
        self._of: dict[str, tuple[_Hook, ...]] = {
            hook: tuple(
                _Hook(configured, hook, call)
                for configured in plugins
                if callable(call := getattr(configured.plugin, hook, None))
            )
            for hook in HOOKS
        }

    def has(self, hook: str) -> bool:
        """Whether any plugin implements the hook."""
        return bool(self._of[hook])

    def on_session(self, view: View) -> list[HookRaised]:
        """Tell all plugins that a session begins; return the failures, all are told."""
        failures: list[HookRaised] = []
        for hook in self._of["on_session"]:
            try:
                hook(view)
            except HookRaised as raised:
                failures.append(raised)
        return failures

    def _keys(self, name: str, *args: Any) -> WholeKey:
        key: list[tuple[bool, int | float | str]] = []
        for hook in self._of[name]:
            part = hook(*args)
            if not isinstance(part, tuple):
                raise hook.wrong(part, "a tuple of numbers and strings")
            for item in part:
                if not isinstance(item, (int, float, str)):
                    raise hook.wrong(part, "a tuple of numbers and strings")
                key.append((isinstance(item, str), item))
        return tuple(key)

    def keys_by_plugin(self, name: str, *args: Any) -> tuple[tuple[str, SortKey], ...]:
        """Return what each plugin answers to `order_queues` or `order_groups`, in the order in which it counts."""
        return tuple((hook.plugin, hook(*args)) for hook in self._of[name])

    def order_queues(self, queue: Queue, head: GroupState, view: View) -> WholeKey:
        """Return the queue's whole key, if `head` is its next group."""
        return self._keys("order_queues", queue, head, view)

    def order_groups(self, state: GroupState, view: View) -> WholeKey:
        """Return the group's whole key."""
        return self._keys("order_groups", state, view)

    def sort_members(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """Return the pods by their whole keys; those with equal keys keep their order."""
        order: Sequence[Pod] = pods
        if len(pods) > 1:
            for hook in reversed(self._of["order_members"]):
                try:
                    order = sorted(order, key=hook.call)
                except Exception as error:
                    raise HookRaised(hook.plugin, hook.hook, error) from error
        return order

    def _first_verdict(self, name: str, *args: Any) -> Verdict | None:
        for hook in self._of[name]:
            answer = hook(*args)
            if answer is None:
                continue
            if not isinstance(answer, Verdict):
                raise hook.wrong(answer, "a Verdict or None")
            return answer
        return None

    def admits(self, state: GroupState, view: View) -> Verdict | None:
        """Return the first verdict against the group's entry, or None."""
        return self._first_verdict("admits", state, view)

    def ready(self, state: GroupState, view: View) -> Verdict | None:
        """Return the first verdict against starting the group, or None."""
        return self._first_verdict("ready", state, view)

    def allows(self, state: GroupState, ask: Amounts, view: View) -> Verdict | None:
        """Return the first verdict against charging the group's queue, or None."""
        return self._first_verdict("allows", state, ask, view)

    def fits(self, shape: Shape, node_class: NodeClass) -> Misfit | None:
        """Return the first misfit, or None."""
        for hook in self._of["fits"]:
            answer = hook(shape, node_class)
            if answer is None:
                continue
            if not isinstance(answer, Misfit):
                raise hook.wrong(answer, "a Misfit or None")
            return answer
        return None

    def scores(self, shape: Shape, node_class: NodeClass) -> int:
        """Return the weighted sum of the static scores."""
        return sum(hook.weight * int(hook(shape, node_class)) for hook in self._of["scores"] if hook.weight)

    def scores_nodes(self, shape: Shape, view: View) -> NDArray[np.int64] | None:
        """Return the weighted sum of the dynamic scores, or None when no plugin gives any."""
        total: NDArray[np.int64] | None = None
        for hook in self._of["scores_nodes"]:
            if not hook.weight:
                continue
            answer = hook(shape, view)
            if not isinstance(answer, np.ndarray) or answer.shape != view.open_slots.shape:
                raise hook.wrong(type(answer).__name__, f"an array of {view.open_slots.shape[0]} scores")
            part = answer.astype(np.int64, copy=False)
            part = part if hook.weight == 1 else part * hook.weight
            total = part if total is None else total + part
        return total

    def wishes(self, state: GroupState, view: View) -> tuple[Wish | Unusable, ...] | Verdict:
        """Return the wishes of all plugins, and sub-groups that cannot start, or the first verdict."""
        wishes: tuple[Wish | Unusable, ...] = ()
        for hook in self._of["wishes"]:
            answer = hook(state, view)
            if isinstance(answer, Verdict):
                return answer
            if not isinstance(answer, tuple):
                raise hook.wrong(answer, "a tuple of wishes or a Verdict")
            wishes += answer
        return wishes

    def sorts(self, pods: Sequence[Pod], view: View) -> list[Hashable] | None:
        """Return what all plugins tell each pod apart by from others of its shape; None when they tell none apart."""
        shapes = view.snapshot.shapes
        parts: list[list[Hashable]] = []
        for hook in self._of["sorts"]:  # asked for every pod of every ask: without a call between
            call = hook.call
            try:
                parts.append([call(pod, shapes[pod.shape], view) for pod in pods])
            except Exception as error:
                raise HookRaised(hook.plugin, hook.hook, error) from error
        if all(part.count(None) == len(part) for part in parts):
            return None
        return [one if one.count(None) < len(one) else None for one in zip(*parts, strict=True)]

    def relates(self, members: tuple[Members, ...], view: View, *, empty: bool) -> Relations | Verdict:
        """Return the relations of all plugins, scores with their weights, or the first verdict."""
        parts: list[Relations] = []
        for hook in self._of["relates"]:
            answer = hook(members, view, empty=empty)
            if isinstance(answer, Verdict):
                return answer
            if not isinstance(answer, Relations):
                raise hook.wrong(answer, "Relations or a Verdict")
            if answer.scores and hook.weight != 1:
                weighted = tuple(Scored(one.kind, one.scores * hook.weight) for one in answer.scores)
                answer = replace(answer, scores=weighted if hook.weight else ())
            parts.append(answer)
        return combined(parts) if parts else NO_RELATIONS

    def on_place(self, members: tuple[tuple[Pod, int], ...], view: View, *, undone: bool) -> None:
        """Tell all plugins."""
        for hook in self._of["on_place"]:
            hook(members, view, undone=undone)

    def prepares(self, members: tuple[tuple[Pod, int], ...], view: View) -> tuple[VolumeStep, ...]:
        """Return what all plugins want done before these members are bound."""
        steps: tuple[VolumeStep, ...] = ()
        for hook in self._of["prepares"]:
            answer = hook(members, view)
            if not isinstance(answer, tuple):
                raise hook.wrong(answer, "a tuple of steps")
            steps += answer
        return steps

    def may_evict(self, preemptor: GroupState, victims: tuple[Pod, ...]) -> Opinion:
        """Return the intersection of all opinions; no plugin having one, that nobody has."""
        left: frozenset[str] | None = None
        for hook in self._of["may_evict"]:
            answer = hook(preemptor, victims)
            if isinstance(answer, NoOpinion):
                continue
            if not isinstance(answer, Only):
                raise hook.wrong(answer, "an Opinion")
            left = answer.uids if left is None else left & answer.uids
        return NoOpinion() if left is None else Only(left & {pod.uid for pod in victims})

    def on_allocate(self, state: GroupState, amounts: Amounts, *, undone: bool) -> None:
        """Tell all plugins."""
        for hook in self._of["on_allocate"]:
            hook(state, amounts, undone=undone)
