"""Whether a selector matches labels, and whether it means a pod: pure functions, the one reading of expressions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from scheduler.model.affinity import LabelSelector, PodSelector, Requirement

Labels = tuple[tuple[str, str], ...]


_OF_LABELS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_INTEGER = re.compile(r"[+-]?0*[0-9]{1,19}")
_PLAIN = re.compile(r"0|-?[1-9][0-9]*")
_LARGEST = 2**63 - 1


def _integer(text: str) -> int | None:
    """Return the number that a text is, if 64 bits hold it."""
    number = int(text) if len(text) < 1000 and _INTEGER.fullmatch(text) else None
    return number if number is None or -_LARGEST - 1 <= number <= _LARGEST else None


def compare(operator: str, left: str | None, right: str) -> bool:
    """Gt and Lt: both sides are integers; anything else does not match."""
    if left is None:
        return False
    a, b = _integer(left), _integer(right)
    if a is None or b is None:
        return False
    return a > b if operator == "Gt" else a < b


def compare_plain(operator: str, left: str, right: str) -> bool:
    """Gt and Lt of tolerations: as `compare`, but a number that is not written plainly (007, +7, -0) is none."""
    return all(_PLAIN.fullmatch(text) for text in (left, right)) and compare(operator, left, right)


def holds(need: Requirement, value: str | None, *, exists: bool) -> bool:
    """Whether one expression holds of a value; an operator that does not exist matches nothing."""
    match need.operator:
        case "In":
            return value is not None and value in need.values
        case "NotIn":
            return value is None or value not in need.values
        case "Exists":
            return exists
        case "DoesNotExist":
            return not exists
        case "Gt" | "Lt":
            return len(need.values) == 1 and compare(need.operator, value, need.values[0])
        case _:
            return False


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether all requirements hold; NotIn and DoesNotExist hold where the label is missing, Gt and Lt nowhere."""
    return all(
        need.operator in _OF_LABELS and holds(need, labels.get(need.key), exists=need.key in labels)
        for need in selector.requirements
    )


def reaches(selector: PodSelector, namespace: str, namespaces: Mapping[str, Labels]) -> bool:
    """Whether pods of a namespace are meant at all; `namespaces`: the labels of each namespace that is known."""
    if namespace in selector.namespaces:
        return True
    wide = selector.namespace_selector
    return wide is not None and selects(wide, dict(namespaces.get(namespace, ())))


def means(
    selectors: tuple[PodSelector, ...], namespace: str, labels: Mapping[str, str], namespaces: Mapping[str, Labels]
) -> bool:
    """Whether all of the selectors mean a pod of the namespace with these labels; `living` is the caller's business."""
    return all(
        one.labels is not None and selects(one.labels, labels) and reaches(one, namespace, namespaces)
        for one in selectors
    )


def narrowest(selectors: tuple[PodSelector, ...]) -> Requirement | None:
    """Return the requirement (In) that leaves the fewest label values, or None where there is none."""
    needs = [need for one in selectors if one.labels for need in one.labels.requirements if need.operator == "In"]
    return min(needs, key=lambda need: len(need.values), default=None)


class SelectorIndex:
    """Numbered selectors, found by the namespace and the labels of a pod without trying each of them."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str, str], dict[int, None]] = {}
        self._others: dict[str, dict[int, None]] = {}

    def add(self, number: int, selectors: tuple[PodSelector, ...]) -> None:
        """Add selectors."""
        for bucket in self._buckets(selectors):
            bucket[number] = None

    def drop(self, number: int, selectors: tuple[PodSelector, ...]) -> None:
        """Take selectors out."""
        for bucket in self._buckets(selectors):
            bucket.pop(number, None)

    def candidates(self, namespace: str, labels: Labels) -> dict[int, None]:
        """Return the numbers of all selectors that may mean a pod, and of few others."""
        found: dict[int, None] = {}
        for space in (namespace, _WIDE):
            found.update(self._others.get(space, {}))
            if self._by_label:
                for key, value in labels:
                    found.update(self._by_label.get((space, key, value), {}))
        return found

    def _buckets(self, selectors: tuple[PodSelector, ...]) -> list[dict[int, None]]:
        first, need = selectors[0], narrowest(selectors)
        spaces = first.namespaces if first.namespace_selector is None else (_WIDE,)
        if need is None:
            return [self._others.setdefault(space, {}) for space in spaces]
        return [self._by_label.setdefault((space, need.key, value), {}) for space in spaces for value in need.values]


_WIDE = ""
"""No namespace has this name: selectors that may reach any."""
