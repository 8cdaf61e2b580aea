"""Which group a pod belongs to, in which role, at which rank, in which queue: read from its labels and annotations.

Also read there: what it says about being evicted for others. Decided here: the order in which references of several
dialects win (Muster's own, then spec.schedulingGroup, the Volcano annotation, the scheduler-plugins label, the KAI
annotation; owners and single pods are nobody's reference) and where ranks are found. Not known here: whether the object
exists. Invariant: the first reference that is present wins, even when its object is missing, so that a pod is never
bound alone because of a typing error.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from types import MappingProxyType

import msgspec

from scheduler.model.pods import Problem

MAX_MEMBERS = 2**31 - 1
MADE_FOR = "scheduling.muster.sh/made-for"
"""Label of a PodGroup that the grouping controller made: the uid of the owner."""
SUSPEND = "scheduling.muster.sh/suspend"
"""Annotation of an object that is a group: nothing of it starts while it says "true"."""
ON_DOMAIN_LOST = "scheduling.muster.sh/on-domain-lost"
"""Annotation of an object that is a group: what happens when a lost member has no place where the others are."""
_RANK_STRIDE = 1_000_000
_TRUTH = MappingProxyType({"true": True, "false": False})
_ON_DOMAIN_LOST = MappingProxyType({"Wait": False, "MoveWhole": True})
VOLCANO_TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""How Volcano's annotations say yes; everything else that is said means no."""
KAI_WORDS = MappingProxyType({"preemptible": True, "non-preemptible": False})
"""How KAI says whether something may be evicted for others."""


class Keys(msgspec.Struct, gc=False):
    """The labels or annotations that matter. The API of Muster accepts each of its names in either place."""

    group: str = msgspec.field(name="scheduling.muster.sh/pod-group", default="")
    subgroup: str = msgspec.field(name="scheduling.muster.sh/subgroup", default="")
    queue: str = msgspec.field(name="scheduling.muster.sh/queue", default="")
    min_member: str | None = msgspec.field(name="scheduling.muster.sh/min-member", default=None)
    topology_required: str = msgspec.field(name="scheduling.muster.sh/topology-required", default="")
    topology_preferred: str = msgspec.field(name="scheduling.muster.sh/topology-preferred", default="")
    preemptible: str = msgspec.field(name="scheduling.muster.sh/preemptible", default="")
    suspend: str = msgspec.field(name="scheduling.muster.sh/suspend", default="")
    volcano_preemptable: str = msgspec.field(name="volcano.sh/preemptable", default="")
    kai_preemptibility: str = msgspec.field(name="kai.scheduler/preemptibility", default="")
    volcano_group: str = msgspec.field(name="scheduling.k8s.io/group-name", default="")
    volcano_group_alias: str = msgspec.field(name="scheduling.volcano.sh/group-name", default="")
    volcano_role: str = msgspec.field(name="volcano.sh/task-spec", default="")
    volcano_index: str = msgspec.field(name="volcano.sh/task-index", default="")
    volcano_queue: str = msgspec.field(name="scheduling.volcano.sh/queue-name", default="")
    volcano_queue_label: str = msgspec.field(name="volcano.sh/queue-name", default="")
    kai_group: str = msgspec.field(name="pod-group-name", default="")
    kai_subgroup: str = msgspec.field(name="kai.scheduler/subgroup-name", default="")
    kai_queue: str = msgspec.field(name="kai.scheduler/queue", default="")
    coscheduling_group: str = msgspec.field(name="scheduling.x-k8s.io/pod-group", default="")
    completion_index: str = msgspec.field(name="batch.kubernetes.io/job-completion-index", default="")
    jobset_index: str = msgspec.field(name="jobset.sigs.k8s.io/job-global-index", default="")
    worker_index: str = msgspec.field(name="leaderworkerset.sigs.k8s.io/worker-index", default="")
    replica_index: str = msgspec.field(name="training.kubeflow.org/replica-index", default="")
    stateful_index: str = msgspec.field(name="apps.kubernetes.io/pod-index", default="")
    rank: str = msgspec.field(name="scheduling.muster.sh/rank", default="")
    charged_to: str = msgspec.field(name="scheduling.muster.sh/charged-to", default="")
    kueue_required: str = msgspec.field(name="kueue.x-k8s.io/podset-required-topology", default="")
    kueue_preferred: str = msgspec.field(name="kueue.x-k8s.io/podset-preferred-topology", default="")
    kueue_slice_level: str = msgspec.field(name="kueue.x-k8s.io/podset-slice-required-topology", default="")
    kueue_slice_size: str = msgspec.field(name="kueue.x-k8s.io/podset-slice-size", default="")
    kueue_slices: str = msgspec.field(name="kueue.x-k8s.io/podset-slice-required-topology-constraints", default="")
    kueue_group: str = msgspec.field(name="kueue.x-k8s.io/podset-group-name", default="")
    kueue_tas: str = msgspec.field(name="kueue.x-k8s.io/tas", default="")
    kueue_workload: str = msgspec.field(name="kueue.x-k8s.io/workload", default="")
    kai_topology: str = msgspec.field(name="kai.scheduler/topology", default="")
    kai_required: str = msgspec.field(name="kai.scheduler/topology-required-placement", default="")
    kai_preferred: str = msgspec.field(name="kai.scheduler/topology-preferred-placement", default="")
    kai_segment_size: str = msgspec.field(name="kai.scheduler/segment-size", default="")
    kai_segment_level: str = msgspec.field(name="kai.scheduler/segment-topology-required-placement", default="")
    kai_segment_wish: str = msgspec.field(name="kai.scheduler/segment-topology-preferred-placement", default="")
    volcano_topology_mode: str = msgspec.field(name="volcano.sh/network-topology-mode", default="")
    volcano_topology_tier: str = msgspec.field(name="volcano.sh/network-topology-highest-tier", default="")
    exclusive_topology: str = msgspec.field(name="alpha.jobset.sigs.k8s.io/exclusive-topology", default="")
    job_key: str = msgspec.field(name="jobset.sigs.k8s.io/job-key", default="")
    replicated_job: str = msgspec.field(name="jobset.sigs.k8s.io/replicatedjob-name", default="")


NO_KEYS = Keys()


def group_key(namespace: str, labels: Keys, annotations: Keys, native: str) -> str:
    """Return the key of the group object that a pod names, or "". `native` is spec.schedulingGroup.podGroupName."""
    own = labels.group or annotations.group
    if own:
        return intern(f"muster/{namespace}/{own}")
    if native:
        return intern(f"native/{namespace}/{native}")
    volcano = annotations.volcano_group or annotations.volcano_group_alias
    if volcano:
        return intern(f"volcano/{namespace}/{volcano}")
    if labels.coscheduling_group:
        return intern(f"coscheduling/{namespace}/{labels.coscheduling_group}")
    if annotations.kai_group:
        return intern(f"kai/{namespace}/{annotations.kai_group}")
    return ""


def role(labels: Keys, annotations: Keys) -> str:
    """Return the role (sub-group, task) of a member, or ""."""
    return intern(
        labels.subgroup
        or annotations.subgroup
        or annotations.volcano_role
        or labels.volcano_role
        or labels.kai_subgroup
    )


def queue(labels: Keys, annotations: Keys) -> str:
    """Return the queue that a pod asks for, or ""."""
    return intern(
        labels.queue
        or annotations.queue
        or annotations.volcano_queue
        or annotations.volcano_queue_label
        or labels.volcano_queue_label
        or labels.kai_queue
    )


def index(labels: Keys, annotations: Keys) -> int:
    """Return a number that orders members by rank (-1: none is known). What was given at binding counts last.

    Members of a JobSet have a job index and a completion index: the former counts first.
    """
    completion = _number(annotations.completion_index or labels.completion_index)
    job = _number(labels.jobset_index or annotations.jobset_index)
    if job >= 0:
        return job * _RANK_STRIDE + max(completion, 0)
    if completion >= 0:
        return completion
    for text in (
        annotations.volcano_index or labels.volcano_index,
        labels.worker_index,
        labels.replica_index,
        labels.stateful_index,
        annotations.rank,
    ):
        number = _number(text)
        if number >= 0:
            return number
    return -1


def min_member(labels: Keys, annotations: Keys, problems: list[Problem]) -> int:
    """Return the annotated minimum (0: absent or not usable)."""
    text = labels.min_member if annotations.min_member is None else annotations.min_member
    if text is None:
        return 0
    number = _number(text)
    if 1 <= number <= MAX_MEMBERS:
        return number
    field = "metadata.annotations[scheduling.muster.sh/min-member]"
    problems.append(Problem(field, f"must be an integer from 1 to {MAX_MEMBERS}, not {text!r}"))
    return 0


def preemptible(labels: Keys, annotations: Keys, problems: list[Problem]) -> bool | None:
    """Return what an object says about being evicted for others; None when it says nothing.

    Muster's word goes first, then Volcano's (where what is no truth value means no, as its users know it), then KAI's.
    """
    own = annotations.preemptible or labels.preemptible
    if own:
        return _said(own, "scheduling.muster.sh/preemptible", _TRUTH, problems)
    volcano = annotations.volcano_preemptable or labels.volcano_preemptable
    if volcano:
        return volcano in VOLCANO_TRUE
    kai = labels.kai_preemptibility or annotations.kai_preemptibility
    return _said(kai, "kai.scheduler/preemptibility", KAI_WORDS, problems) if kai else None


def suspended(text: str, problems: list[Problem]) -> str:
    """Return the field that suspends a group ("" = none), from what its annotation says ("" = absent)."""
    said = _said(text, SUSPEND, _TRUTH, problems) if text else False
    return f"metadata.annotations[{SUSPEND}]" if said else ""


def moves_whole(text: str, problems: list[Problem]) -> bool:
    """Return whether a group may be moved as a whole, from what its annotation says ("" = absent)."""
    return bool(_said(text, ON_DOMAIN_LOST, _ON_DOMAIN_LOST, problems)) if text else False


def _said(text: str, key: str, words: Mapping[str, bool], problems: list[Problem]) -> bool | None:
    if text not in words:
        either = " or ".join(f'"{word}"' for word in words)
        problems.append(Problem(f"metadata.annotations[{key}]", f"must be {either}, not {text!r}"))
    return words.get(text)


def _number(text: str) -> int:
    """Return a non-negative decimal number of at most ten digits, else -1."""
    return int(text) if text and len(text) <= 10 and text.isascii() and text.isdigit() else -1
