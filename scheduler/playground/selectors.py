"""Label and field selectors: parse the text once, then answer per object.

Decided here: the grammar of both selectors and which fields may be selected on for each resource. Invariant: a
selector that the real server refuses is refused here with 400, never read as "everything".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from scheduler.playground.errors import Obj, bad_request
from scheduler.playground.metadata import label_value, qualified_name

Match = Callable[[Obj], bool]
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)$")
_NUMERIC = re.compile(r"^(?P<key>[^\s<>=!]+)\s*(?P<op>[<>])\s*(?P<value>-?\d+)$")


def split_terms(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    terms, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            terms.append(text[start:index].strip())
            start = index + 1
    terms.append(text[start:].strip())
    return terms if any(terms) else []


def _unable(why: str) -> Exception:
    return bad_request(f"unable to parse requirement: {why}")


def _labels(obj: Obj) -> dict[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}


def _checked(key: str, *values: str) -> None:
    for cause in qualified_name("<nil>", key):
        raise _unable(f"<nil>: {cause.message}")
    for value in values:
        for cause in label_value(f"values[0][{key}]", value):
            raise _unable(f"{cause.field}: {cause.message}")


def _requirement(term: str) -> Callable[[dict[str, str]], bool]:
    if not term:
        raise bad_request("found ',', expected: identifier after ','")
    found = _SET.match(term)
    if found:
        key = found["key"]
        values = frozenset(value.strip() for value in found["values"].split(","))
        _checked(key, *sorted(values))
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: key not in labels or labels[key] not in values
    found = _NUMERIC.match(term)
    if found:
        key, limit, greater = found["key"], int(found["value"]), found["op"] == ">"
        _checked(key)

        def compare(labels: dict[str, str]) -> bool:
            try:
                number = int(labels[key])
            except (KeyError, ValueError):
                return False
            return number > limit if greater else number < limit

        return compare
    for sign in ("!=", "==", "="):
        if sign in term:
            key, value = (part.strip() for part in term.split(sign, 1))
            _checked(key, value)
            if sign == "!=":
                return lambda labels: labels.get(key) != value
            return lambda labels: labels.get(key) == value
    if term.startswith("!"):
        key = term[1:].strip()
        _checked(key)
        return lambda labels: key not in labels
    _checked(term)
    return lambda labels: term in labels


def label_selector(text: str) -> Match | None:
    """Return a test of an object's labels, or None for "everything"."""
    tests = [_requirement(term) for term in split_terms(text)]
    if not tests:
        return None
    if len(tests) == 1:
        only = tests[0]
        return lambda obj: only(_labels(obj))
    return lambda obj: all(test(_labels(obj)) for test in tests)


def match_label_selector(selector: Obj | None, labels: dict[str, str]) -> bool:
    """Tell whether a `metav1.LabelSelector` object selects the labels; None selects nothing, {} everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for row in selector.get("matchExpressions") or ():
        key, operator, values = row.get("key", ""), row.get("operator"), row.get("values") or ()
        present = key in labels
        if operator == "In" and not (present and labels[key] in values):
            return False
        if operator == "NotIn" and present and labels[key] in values:
            return False
        if operator == "Exists" and not present:
            return False
        if operator == "DoesNotExist" and present:
            return False
    return True


def _dig(obj: Obj, path: tuple[str, ...]) -> str:
    value: Any = obj
    for part in path:
        if not isinstance(value, dict):
            return ""
        value = value.get(part)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


_FIELDS: dict[str, dict[str, str]] = {
    "pods": {
        "spec.nodeName": "",
        "spec.restartPolicy": "",
        "spec.schedulerName": "",
        "spec.serviceAccountName": "",
        "spec.hostNetwork": "false",
        "status.phase": "",
        "status.podIP": "",
        "status.nominatedNodeName": "",
    },
    "nodes": {"spec.unschedulable": "false"},
    "namespaces": {"status.phase": ""},
    "events": dict.fromkeys(
        (
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        "",
    ),
    "secrets": {"type": ""},
    "replicasets.apps": {"status.replicas": "0"},
    "jobs.batch": {"status.successful": "0"},
}
_ALIASES = {
    "status.successful": ("status", "succeeded"),
    "source": ("source", "component"),
}


def _event_alias(group: str, key: str) -> str:
    if group == "events.k8s.io":
        if key.startswith("regarding."):
            return "involvedObject." + key.removeprefix("regarding.")
        if key == "reportingController":
            return "reportingComponent"
    return key


def field_selector(text: str, storage: str, group: str = "", extra: dict[str, str] | None = None) -> Match | None:
    """Return a test of an object's fields, or None for "everything"; `extra` are a CRD's selectable fields."""
    allowed = {**_FIELDS.get(storage, {}), **(extra or {})}
    tests: list[Match] = []
    for term in filter(None, split_terms(text)):
        for sign in ("!=", "==", "="):
            if sign in term:
                key, value = (part.strip() for part in term.split(sign, 1))
                break
        else:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        key = _event_alias(group, key)
        if key not in ("metadata.name", "metadata.namespace") and key not in allowed:
            raise bad_request(f"field label not supported: {key}")
        path = _ALIASES.get(key, tuple(key.split(".")))
        default = allowed.get(key, "")
        wanted = sign != "!="
        tests.append(_field_test(path, value, default, wanted))
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)


def _field_test(path: tuple[str, ...], value: str, default: str, wanted: bool) -> Match:
    return lambda obj: ((_dig(obj, path) or default) == value) is wanted


def exact_name(text: str) -> str | None:
    """Return the name when the selector pins metadata.name, so that a list can be a look-up."""
    for term in split_terms(text):
        key, _, value = term.replace("==", "=").partition("=")
        if key.strip() == "metadata.name" and not key.endswith("!"):
            return value.strip()
    return None


def combine(*tests: Match | None) -> Match | None:
    """Return the conjunction; None when nothing restricts."""
    real = [test for test in tests if test is not None]
    if not real:
        return None
    if len(real) == 1:
        return real[0]
    return lambda obj: all(test(obj) for test in real)
