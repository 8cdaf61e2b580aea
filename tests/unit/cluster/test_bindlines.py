"""The lines of a bind request for members: with and without what is written on the pod."""

from __future__ import annotations

import json

import pytest

from scheduler.binder.pool import binding
from scheduler.cluster.bindlines import BadRequest, member_line, read_members
from scheduler.model.decisions import Assignment, Mark

MARKS = [
    None,
    Mark(0),
    Mark(17, (("rack", "r1"),)),
    Mark(-1, (("tier 1", "a/b"), ("example.com/rack", "x,y=z %41"))),
]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("namespace", ["ns", "elsewhere"])
def test_a_member_comes_back_as_it_was_written(mark: Mark | None, namespace: str) -> None:
    one = Assignment("u1", namespace, "p", "n", mark)
    assert list(read_members("here", "ns", member_line("ns", one))) == [one]


@pytest.mark.parametrize(
    "line",
    ["p u n ns x", "p u n rank=", "p u n rank=-1", "p u n rank=1,rank=2", "p u n what=1", "p u n ns rank=1 x", "p u"],
)
def test_a_line_that_is_no_member_names_itself(line: str) -> None:
    with pytest.raises(BadRequest, match=r"here.placements: line 1 must be: pod uid node"):
        list(read_members("here", "ns", line))


def test_a_binding_carries_rank_and_domains_as_annotations() -> None:
    body = json.loads(binding(Assignment("u1", "ns", "p", "n", Mark(3, (("block", "b0"), ("rack", 'r"1'))))))
    assert body["metadata"]["annotations"] == {
        "scheduling.muster.sh/rank": "3",
        "scheduling.muster.sh/domains": 'block=b0,rack=r"1',
    }
    assert "annotations" not in json.loads(binding(Assignment("u1", "ns", "p", "n")))["metadata"]
