"""What counts as a difference between Muster and kube-scheduler on one case.

Decided here: the feasible sets must be equal, and so must be the class of each rejection (whether the end of running
pods may help) and, for a pod that can go nowhere, what it is told. For the class all of kube-scheduler's plugins are
asked, also those after the first that rejects a node, and nothing helps where one of them says
UnschedulableAndUnresolvable. A single plugin still stops at the first of its constraints: of two spread constraints,
one too uneven and one whose label the node lacks, it may name the first.
"""

from __future__ import annotations

import re
from typing import Any

from tests.controlplane.oracle import Oracle
from tests.differential.muster import Answer, Muster

Json = dict[str, Any]

_FEATURES = "NodeDeclaredFeatures"
"""A kubelet learns nothing by the end of pods: see docs/deviations.md for the class and the order."""


def compare(question: Json, oracle: Oracle, muster: Muster) -> str | None:
    """Ask both sides about one case. Returns how they differ ("" = they do not), None for a case that is not valid."""
    if question.get("podGroups"):
        return compare_gang(question, oracle, muster)
    return judge(oracle.ask(question), muster)


def judge(theirs: Json, muster: Muster) -> str | None:
    """Compare with the oracle's answer to one question about one pod, as `compare` does."""
    if theirs.get("invalid"):
        return None
    try:
        return difference(theirs["stored"], theirs["answers"][0], muster.answer(theirs["stored"]))
    except Exception as error:  # noqa: BLE001 a failure of Muster on a valid case is a difference, and is shrunk like one
        return f"Muster failed: {error!r}"


def compare_gang(question: Json, oracle: Oracle, muster: Muster) -> str | None:
    """Compare a gang that starts whole with its members scheduled one by one, in any order.

    Muster must place it where that succeeds in some order, and only as some order would have done. Only outcomes count
    in which the spread constraints of all members hold at the end, which kube-scheduler does not look at.
    """
    theirs = oracle.ask({**question, "gang": True})
    if theirs.get("invalid"):
        return None
    (group,) = question["podGroups"]
    whole = {**group, "spec": {"minMember": len(question["incoming"])}}
    stored = {**theirs["stored"], "podGroups": [whole]}
    try:
        placed = muster.gang(stored)
    except Exception as error:  # noqa: BLE001 as above
        return f"Muster failed: {error!r}"
    if len(placed) not in (0, len(question["incoming"])):
        return f"Muster placed a part: {placed}"
    if not placed:
        return f"only kube-scheduler places the gang: {theirs['outcome']}" if theirs["reachable"] else ""
    if not oracle.ask({**question, "target": placed})["reachable"]:
        return f"only Muster places the gang so: {placed}; in some other way: {theirs['reachable']}"
    return ""


def difference(stored: Json, theirs: Json, ours: Answer) -> str:
    """Return in words how the answers differ ("" = they do not). `stored`: the case as the API server keeps it."""
    feasible = set(theirs["feasible"])
    parts = [f"only Muster: {name}" for name in sorted(ours.feasible - feasible)]
    parts += [
        f"only kube-scheduler: {name}{' ' + ours.why if ours.why else ''}" for name in sorted(feasible - ours.feasible)
    ]
    if parts:
        return "; ".join(parts) + f" (kube-scheduler rejects {reasons(theirs)})"
    for name, rejections in sorted(theirs["rejected"].items()):
        if any(one["code"] == "Error" for one in rejections):
            continue  # a failure of kube-scheduler, which tries again; it has no class
        lasting = [one["plugin"] for one in rejections if one["code"] == "UnschedulableAndUnresolvable"]
        lasting += [_FEATURES] if any(one["plugin"] == _FEATURES for one in rejections) else []
        if not lasting and any(one["plugin"] == "PodTopologySpread" for one in rejections):
            lasting = _missing_labels(stored, name)
        if bool(lasting) == (name in ours.helped):
            said = f"no, for {', '.join(lasting)}" if lasting else "yes"
            return f"may the end of pods help on {name}? kube-scheduler {said}; Muster {name in ours.helped}"
    told, said = _told(stored, theirs), _merged(ours.reasons)
    if told and not feasible and told != said:
        return f"reasons: kube-scheduler {told}; Muster {said}"
    return ""


def _told(stored: Json, theirs: Json) -> dict[str, int] | None:
    """What kube-scheduler says, with the number of nodes; None where it has another way to say it.

    That is so for nodes that it does not look at because others are named, where it fails, and for volumes, several
    spread constraints and features of the kubelet, of which it names the problems in another order.
    """
    spec = stored["incoming"][0]["spec"]
    if spec.get("volumes") or len(spec.get("topologySpreadConstraints", ())) > 1:
        return None
    counts: dict[str, int] = {}
    for first, *others in theirs["rejected"].values():
        if first["code"] == "Error" or not first["plugin"] or any(one["plugin"] == _FEATURES for one in others):
            return None
        for reason in set(first["reasons"]):
            counts[reason] = counts.get(reason, 0) + 1
    return counts


def _merged(reasons: dict[str, int]) -> dict[str, int]:
    """Muster names the taint."""
    counts: dict[str, int] = {}
    for reason, count in reasons.items():
        text = re.sub(r"taint \{.*\}", "taint(s)", reason)
        counts[text] = counts.get(text, 0) + count
    return counts


def _missing_labels(stored: Json, name: str) -> list[str]:
    labels = next(node["metadata"].get("labels", {}) for node in stored["nodes"] if node["metadata"]["name"] == name)
    constraints = stored["incoming"][0]["spec"]["topologySpreadConstraints"]
    hard = [one["topologyKey"] for one in constraints if one["whenUnsatisfiable"] == "DoNotSchedule"]
    return [f"label {key}" for key in hard if key not in labels]


def reasons(theirs: Json) -> Json:
    """What kube-scheduler says for each node that it rejects."""
    return {
        name: [f"{one.get('plugin', '')}: {', '.join(one['reasons'])}" for one in rejections]
        for name, rejections in sorted(theirs["rejected"].items())
    }
