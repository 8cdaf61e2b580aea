"""Kubernetes' own selection rules for nodes, as pure functions over a node class: selector terms and tolerations.

Nodes that nobody asks for by name share a class whose `name` is empty and whose labels lack the hostname; here an empty
name means "some other name, and some other hostname, than any that is asked for".
"""

from __future__ import annotations

from scheduler.model.affinity import Requirement
from scheduler.model.nodes import HOSTNAME, NodeClass, Taint
from scheduler.model.pods import SelectorTerm, Shape, Toleration
from scheduler.model.selecting import compare_plain, holds


def matches_expression(need: Requirement, node_class: NodeClass) -> bool:
    """Whether the labels satisfy one expression; an operator that does not exist matches nothing."""
    value = node_class.label(need.key)
    if need.key == HOSTNAME and not node_class.name:
        return holds(need, None, exists=True)
    return holds(need, value, exists=value is not None)


def matches_field(need: Requirement, node_class: NodeClass) -> bool:
    """Whether a field requirement holds; only metadata.name with In or NotIn exists."""
    if need.key != "metadata.name" or need.operator not in ("In", "NotIn"):
        return False
    return holds(need, node_class.name or None, exists=True)


def matches_term(term: SelectorTerm, node_class: NodeClass) -> bool:
    """Whether all of a term holds; a term that asks for nothing matches nothing."""
    if not term.expressions and not term.fields:
        return False
    return all(matches_expression(need, node_class) for need in term.expressions) and all(
        matches_field(need, node_class) for need in term.fields
    )


def matches_affinity(shape: Shape, node_class: NodeClass) -> bool:
    """Whether node selector and required node affinity both accept the class."""
    for key, value in shape.node_selector:
        if not matches_expression(Requirement(key, "In", (value,)), node_class):
            return False
    return shape.required_terms is None or any(matches_term(term, node_class) for term in shape.required_terms)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration accepts one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.key) and toleration.value == taint.value
        case "Gt" | "Lt":
            return bool(toleration.key) and compare_plain(toleration.operator, taint.value, toleration.value)
        case _:
            return False


def untolerated(shape: Shape, node_class: NodeClass, effects: tuple[str, ...]) -> tuple[Taint, ...]:
    """Return the taints with one of the effects that the shape does not tolerate."""
    return tuple(
        taint
        for taint in node_class.taints
        if taint.effect in effects and not any(tolerates(toleration, taint) for toleration in shape.tolerations)
    )
