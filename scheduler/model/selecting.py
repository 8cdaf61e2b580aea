"""Whether a selector means a pod: pure functions over labels, used wherever pods are counted."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.model.affinity import LabelSelector, PodSelector

Labels = tuple[tuple[str, str], ...]


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether all requirements hold; NotIn and DoesNotExist hold where the label is missing."""
    for need in selector.requirements:
        value = labels.get(need.key)
        match need.operator:
            case "In":
                holds = value is not None and value in need.values
            case "NotIn":
                holds = value is None or value not in need.values
            case "Exists":
                holds = value is not None
            case "DoesNotExist":
                holds = value is None
            case _:
                holds = False
        if not holds:
            return False
    return True


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
