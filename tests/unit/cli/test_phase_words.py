"""The phase of a group is told in the word that stands in its object's status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.cli.get import phase_of
from scheduler.dialects.registry import BY_NAME
from scheduler.model.decisions import SetStatus
from scheduler.model.groups import GroupState
from scheduler.model.phases import WORDS
from scheduler.model.verdict import Code, verdict

OBJECT: dict[str, Any] = {"metadata": {"name": "train", "namespace": "ns", "uid": "u"}, "spec": {"minMember": 1}}


def written_and_told(name: str, phase: str, code: Code | None = None) -> tuple[str, str]:
    """Write a phase to an object of a dialect and read it again; the word that stands there and the one printed."""
    dialect = BY_NAME[name]
    version = dialect.resources[0].versions[0]
    group = dialect.decode_group(json.dumps(OBJECT).encode(), version)
    said = SetStatus(group.key, "u", phase, (), verdict(code) if code else None)
    patch = dialect.status_patch(group, said, "", "2026-01-01T00:00:00Z")
    assert patch is not None
    read = dialect.decode_group(json.dumps(OBJECT | patch).encode(), version)
    return patch["status"]["phase"], phase_of(GroupState(read))


@pytest.mark.parametrize("phase", sorted(WORDS["muster"]))
@pytest.mark.parametrize("name", sorted(WORDS))
def test_the_word_is_that_of_the_objects_status(name: str, phase: str) -> None:
    written, told = written_and_told(name, phase)
    assert told == written


def test_a_group_that_is_let_in_is_admitted_and_one_that_is_kept_out_suspended() -> None:
    assert written_and_told("muster", "Inqueue", Code.RESOURCES) == ("Admitted", "Admitted")
    assert written_and_told("muster", "Inqueue", Code.SUSPENDED) == ("Suspended", "Suspended")
    assert written_and_told("volcano", "Inqueue", Code.SUSPENDED) == ("Inqueue", "Inqueue")
