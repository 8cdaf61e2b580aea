"""Validation of the placement rules in a pod spec: tolerations, affinity, topology spread.

Decided here: which of those rules the server refuses. It must not know containers or storage. Invariant: every error
names the path of the field.
"""

from __future__ import annotations

from typing import Any

from scheduler.playground.errors import Cause, Obj, field_forbidden, field_invalid, field_required, field_unsupported
from scheduler.playground.metadata import labels, qualified_name

_EFFECTS = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
_NODE_OPERATORS = ["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]


def tolerations(where: str, rows: list[Obj]) -> list[Cause]:
    """Return the errors of a list of tolerations."""
    causes: list[Cause] = []
    for index, row in enumerate(rows):
        at = f"{where}[{index}]"
        key, operator, effect = row.get("key") or "", row.get("operator") or "Equal", row.get("effect") or ""
        if key:
            causes += qualified_name(f"{at}.key", key)
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            causes.append(field_invalid(f"{at}.operator", operator, text))
        if row.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            causes.append(field_invalid(f"{at}.effect", effect, text))
        if operator == "Exists" and row.get("value"):
            causes.append(
                field_invalid(f"{at}.operator", row["value"], "value must be empty when `operator` is 'Exists'")
            )
        elif operator not in ("Exists", "Equal", "Lt", "Gt"):
            causes.append(field_unsupported(f"{at}.operator", operator, ["Equal", "Exists"]))
        if effect and effect not in _EFFECTS:
            causes.append(field_unsupported(f"{at}.effect", effect, _EFFECTS))
    return causes


def label_selector(where: str, selector: Any) -> list[Cause]:
    """Return the errors of a metav1.LabelSelector."""
    if not selector:
        return []
    causes = labels(f"{where}.matchLabels", selector.get("matchLabels"))
    for index, row in enumerate(selector.get("matchExpressions") or ()):
        at, operator = f"{where}.matchExpressions[{index}]", row.get("operator")
        if operator in ("In", "NotIn"):
            if not row.get("values"):
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                causes.append(field_required(f"{at}.values", text))
        elif operator in ("Exists", "DoesNotExist"):
            if row.get("values"):
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(field_forbidden(f"{at}.values", text))
        else:
            causes.append(field_invalid(f"{at}.operator", operator, "not a valid selector operator"))
        causes += qualified_name(f"{at}.key", row.get("key"))
    return causes


def _node_term(where: str, term: Obj) -> list[Cause]:
    causes: list[Cause] = []
    for field in ("matchExpressions", "matchFields"):
        for index, row in enumerate(term.get(field) or ()):
            at, operator, values = f"{where}.{field}[{index}]", row.get("operator"), row.get("values") or []
            if operator in ("In", "NotIn") and not values:
                causes.append(field_required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
            elif operator in ("Exists", "DoesNotExist") and values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                causes.append(field_forbidden(f"{at}.values", text))
            elif operator in ("Gt", "Lt") and len(values) != 1:
                text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
                causes.append(field_required(f"{at}.values", text))
            elif operator not in _NODE_OPERATORS:
                causes.append(field_invalid(f"{at}.operator", operator, "not a valid selector operator"))
            if field == "matchExpressions":
                causes += qualified_name(f"{at}.key", row.get("key"))
            elif row.get("key") != "metadata.name":
                text = "not a valid field selector key"
                causes.append(field_invalid(f"{at}.key", row.get("key"), text))
    return causes


def _pod_term(where: str, term: Obj) -> list[Cause]:
    causes = label_selector(f"{where}.labelSelector", term.get("labelSelector"))
    causes += label_selector(f"{where}.namespaceSelector", term.get("namespaceSelector"))
    if not term.get("topologyKey"):
        causes.append(field_required(f"{where}.topologyKey", "can not be empty"))
    return causes + qualified_name(f"{where}.topologyKey", term.get("topologyKey") or "")


def _weight(where: str, row: Obj) -> list[Cause]:
    weight = row.get("weight")
    if not isinstance(weight, int) or not 1 <= weight <= 100:
        return [field_invalid(f"{where}.weight", weight or 0, "must be in the range 1-100")]
    return []


def affinity(where: str, rules: Obj) -> list[Cause]:
    """Return the errors of node and pod affinity."""
    causes: list[Cause] = []
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    node = rules.get("nodeAffinity") or {}
    if node.get(hard) is not None:
        terms, at = node[hard].get("nodeSelectorTerms") or [], f"{where}.nodeAffinity.{hard}.nodeSelectorTerms"
        if not terms:
            causes.append(field_required(at, "must have at least one node selector term"))
        for index, term in enumerate(terms):
            causes += _node_term(f"{at}[{index}]", term)
    for index, row in enumerate(node.get(soft) or ()):
        at = f"{where}.nodeAffinity.{soft}[{index}]"
        causes += _weight(at, row) + _node_term(f"{at}.preference", row.get("preference") or {})
    for kind in ("podAffinity", "podAntiAffinity"):
        pod = rules.get(kind) or {}
        for index, term in enumerate(pod.get(hard) or ()):
            causes += _pod_term(f"{where}.{kind}.{hard}[{index}]", term)
        for index, row in enumerate(pod.get(soft) or ()):
            at = f"{where}.{kind}.{soft}[{index}]"
            causes += _weight(at, row) + _pod_term(f"{at}.podAffinityTerm", row.get("podAffinityTerm") or {})
    return causes


def spread_constraints(where: str, rows: list[Obj]) -> list[Cause]:
    """Return the errors of topology spread constraints."""
    causes: list[Cause] = []
    for index, row in enumerate(rows):
        at = f"{where}[{index}]"
        if not isinstance(row.get("maxSkew"), int) or row["maxSkew"] <= 0:
            causes.append(field_invalid(f"{at}.maxSkew", row.get("maxSkew") or 0, "must be greater than zero"))
        if not row.get("topologyKey"):
            causes.append(field_required(f"{at}.topologyKey", "can not be empty"))
        action = row.get("whenUnsatisfiable") or ""
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            supported = ["DoNotSchedule", "ScheduleAnyway"]
            causes.append(field_unsupported(f"{at}.whenUnsatisfiable", action, supported))
        least = row.get("minDomains")
        if least is not None:
            if least <= 0:
                causes.append(field_invalid(f"{at}.minDomains", least, "must be greater than zero"))
            if action != "DoNotSchedule":
                text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                causes.append(field_invalid(f"{at}.minDomains", least, text))
        causes += label_selector(f"{at}.labelSelector", row.get("labelSelector"))
    return causes
