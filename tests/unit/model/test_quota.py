"""Entitlements and headroom: worked numbers of schedulers that people come from, and the edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from scheduler.model import quota
from scheduler.model.filling import CEILING
from scheduler.model.queues import UNLIMITED, Queue
from scheduler.model.quota import Fields, History, Structure
from tests.unit.model.rooms import rooms


class Tree:
    """Queues of one resource, "x", below a root; rows in the order given."""

    def __init__(self, *queues: Queue) -> None:
        self.queues = (Queue(name="root"), *queues)
        self.rows = {queue.name: row for row, queue in enumerate(self.queues)}
        parents = [-1, *(self.rows[queue.parent or "root"] for queue in queues)]
        self.structure = Structure.of(parents, [queue.name for queue in self.queues])
        self.fields = Fields.of(self.queues, ("x",))

    def column(self, values: dict[str, int]) -> np.ndarray:
        return np.asarray([[values.get(queue.name, 0)] for queue in self.queues], dtype=np.int64)

    def entitled(self, total: int, demand: dict[str, int], history: History | None = None) -> list[int]:
        found = quota.entitlements(self.structure, self.fields, self.column(demand), np.asarray([total]), history)
        return found[1:, 0].tolist()

    def headroom(self, total: int, usage: dict[str, int]) -> dict[str, int]:
        found = rooms(self.structure, self.fields, self.column(usage), np.asarray([total]))
        return {queue.name: int(found[row, 0]) for row, queue in enumerate(self.queues)}


def queue(
    name: str,
    parent: str = "",
    *,
    weight: float = 1,
    priority: int = 0,
    guarantee: int | None = None,
    deserved: int | None = None,
    limit: int | None = None,
) -> Queue:
    def field(value: int | None) -> tuple[tuple[str, int], ...]:
        return () if value is None else (("x", value),)

    return Queue(
        name=name,
        parent=parent,
        weight=round(weight * 1000),
        priority=priority,
        guarantee=field(guarantee),
        deserved=field(deserved),
        limit=field(limit),
    )


def flat(total: int, *rows: tuple[int, ...]) -> list[int]:
    """Rows are deserved, weight, demand and perhaps limit."""
    queues, demand = [], {}
    for number, (deserved, weight, asked, *limit) in enumerate(rows):
        name = f"q{number}"
        queues.append(queue(name, weight=weight, deserved=deserved, limit=limit[0] if limit else None))
        demand[name] = asked
    return Tree(*queues).entitled(total, demand)


@pytest.mark.parametrize(("first", "expected"), [(5000, [5000, 10_000, 15_000]), (2000, [2000, 11_200, 16_800])])
def test_only_weights_divide_as_volcano_proportion_does(first: int, expected: list[int]) -> None:
    tree = Tree(queue("q1", weight=1), queue("q2", weight=2), queue("q3", weight=3))
    assert tree.entitled(30_000, {"q1": first, "q2": 40_000, "q3": 40_000}) == expected


@pytest.mark.parametrize(
    ("total", "rows", "expected"),
    [
        (8, [(1, 1, 8), (1, 1, 8)], [4, 4]),
        (12, [(2, 1, 10), (2, 2, 7)], [5, 7]),
        (10, [(2, 1, 4), (2, 2, 7)], [4, 6]),
        (4, [(2, 2, 3), (1, 1, 2)], [3, 1]),
        (9, [(4, 4, 8), (4, 4, 3), (10, 10, 1)], [5, 3, 1]),
        (10, [(2, 1, 10, 3), (2, 1, 10)], [3, 7]),
        (10, [(2, 0, 10), (2, 1, 5)], [2, 5]),
        (10, [(UNLIMITED, 0, 4), (3, 1, 10)], [4, 6]),
    ],
)
def test_quota_weight_and_limit_divide_as_kai_does(
    total: int, rows: list[tuple[int, ...]], expected: list[int]
) -> None:
    assert flat(total, *rows) == expected


def test_deserved_that_the_parent_does_not_have_is_scaled() -> None:
    assert flat(8, (6, 6, 8), (5, 5, 5)) == [4, 4]


@pytest.mark.parametrize(("factor", "expected"), [(1.0, [20, 80]), (0.5, [35, 65]), (0.0, [50, 50])])
def test_usage_history_shifts_the_surplus_as_kai_does(factor: float, expected: list[int]) -> None:
    tree = Tree(queue("a"), queue("b"))
    used = np.asarray([[0.0], [0.8], [0.2]])
    assert tree.entitled(100, {"a": 100, "b": 100}, History(used, factor)) == expected


def test_usage_history_leaves_what_is_deserved() -> None:
    tree = Tree(queue("a", deserved=60), queue("b"))
    used = np.asarray([[0.0], [1.0], [0.0]])
    assert tree.entitled(100, {"a": 100, "b": 100}, History(used, 1.0)) == [60, 40]


def test_what_one_leaves_is_divided_by_the_weights_of_those_who_still_want() -> None:
    tree = Tree(queue("a"), queue("b"), queue("c"))
    used = np.asarray([[0.0], [0.9], [0.1], [0.0]])
    # First 0, 45.9 and 54.1 are offered; c takes 12. Then 43 by 0.1 and 0.9.
    assert tree.entitled(100, {"a": 100, "b": 100, "c": 12}, History(used, 1.0)) == [4, 84, 12]


def test_history_that_leaves_nobody_a_weight_is_not_looked_at() -> None:
    tree = Tree(queue("a"), queue("b", weight=3))
    used = np.asarray([[0.0], [1.0], [1.0]])
    assert tree.entitled(100, {"a": 100, "b": 100}, History(used, 9.0)) == [25, 75]


@pytest.mark.parametrize(
    ("on", "used", "expected"), [("surplus", (0.8, 0.2), (0.4, 1.6)), ("weights", (0.5, 0.0), (0.5, 1.0))]
)
def test_what_history_does_to_a_weight_can_be_told(
    on: str, used: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    tree = Tree(queue("a"), queue("b"), queue("idle"))
    history = History(np.asarray([[0.0], *([one] for one in used), [0.9]]), 1.0, on)
    tree = tree if on == "surplus" else Tree(queue("a"), queue("b"), queue("idle", weight=0))
    found = quota.shifts(tree.structure, tree.fields, tree.column({"a": 100, "b": 100}), history)
    assert found[1:, 0].tolist() == pytest.approx([*expected, 1.0])


def test_history_that_leaves_nobody_a_weight_changes_none() -> None:
    tree = Tree(queue("a"), queue("b", weight=3))
    history = History(np.asarray([[0.0], [1.0], [1.0]]), 9.0)
    assert quota.shifts(tree.structure, tree.fields, tree.column({"a": 9, "b": 9}), history)[1:, 0].tolist() == [1, 1]


def test_history_on_weights_halves_the_weight_of_a_queue_that_used_its_part() -> None:
    tree = Tree(queue("a"), queue("b"))
    used = np.asarray([[0.0], [0.5], [0.0]])
    assert tree.entitled(99, {"a": 100, "b": 100}, History(used, 1.0, "weights")) == [33, 66]


def test_history_on_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="not on 'quota'"):
        Tree(queue("a")).entitled(1, {"a": 1}, History(np.zeros((2, 1)), 1.0, "quota"))


def test_an_odd_unit_stays_with_the_higher_priority() -> None:
    tree = Tree(queue("a", priority=200), queue("b", priority=200), queue("c", priority=100))
    assert tree.entitled(3, {"a": 9, "b": 9, "c": 9}) == [2, 1, 0]


def test_a_higher_priority_is_served_up_to_its_limit_first() -> None:
    tree = Tree(queue("a", priority=1, limit=6), queue("b", deserved=1), queue("c"))
    assert tree.entitled(10, {"a": 9, "b": 9, "c": 9}) == [6, 3, 1]


def test_scarce_deserved_goes_by_priority_but_never_below_a_guarantee() -> None:
    tree = Tree(queue("a", priority=1, deserved=8), queue("b", deserved=8, guarantee=3))
    assert tree.entitled(10, {"a": 9, "b": 9}) == [7, 3]


def test_a_guarantee_is_held_while_idle() -> None:
    tree = Tree(queue("a", guarantee=4), queue("b"))
    assert tree.entitled(10, {"b": 20}) == [4, 6]


def test_a_guarantee_counts_for_those_above_and_not_beyond_a_limit() -> None:
    tree = Tree(queue("a"), queue("a1", "a", guarantee=4, limit=3), queue("a2", "a", guarantee=1), queue("b"))
    assert tree.entitled(10, {"b": 20}) == [4, 3, 1, 6]


def test_an_inner_queue_that_says_nothing_deserves_what_those_below_it_do() -> None:
    tree = Tree(queue("a"), queue("a1", "a", deserved=6), queue("b", weight=100, deserved=1))
    assert tree.entitled(8, {"a1": 9, "b": 9}) == [6, 6, 2]


def test_an_inner_queue_that_deserves_nothing_has_only_surplus_to_divide() -> None:
    tree = Tree(queue("a", deserved=0), queue("a1", "a", deserved=6), queue("b", weight=3))
    assert tree.entitled(8, {"a1": 9, "b": 9}) == [2, 2, 6]


def test_what_an_inner_queue_uses_itself_comes_before_those_below_it() -> None:
    tree = Tree(queue("a", limit=5), queue("a1", "a", deserved=6))
    assert tree.entitled(8, {"a": 2, "a1": 9}) == [5, 3]


def test_a_limit_of_zero_is_not_an_unset_one() -> None:
    assert Tree(queue("a", limit=0), queue("b", limit=UNLIMITED)).entitled(8, {"a": 5, "b": 9}) == [0, 8]


def test_the_root_may_have_a_limit() -> None:
    tree = Tree(queue("a"))
    tree.fields.limit[0] = 3
    assert tree.entitled(8, {"a": 5}) == [3]
    assert tree.headroom(8, {"a": 1})["a"] == 2


def test_a_weight_for_one_resource_replaces_the_weight() -> None:
    queues = (Queue(name="root"), Queue(name="a", weights=(("x", 3000),)), Queue(name="b"))
    assert Fields.of(queues, ("x", "y")).weight.tolist() == [[1000, 1000], [3000, 1000], [1000, 1000]]


def test_sums_beyond_64_bits_are_exact() -> None:
    huge = 2**61
    names = [f"q{number:03}" for number in range(100)]
    tree = Tree(*(queue(name, deserved=huge + 7 * number) for number, name in enumerate(names)))
    total = 2**56 + 1
    found = tree.entitled(total, dict.fromkeys(names, CEILING))
    assert sum(found) == total
    whole = sum(huge + 7 * number for number in range(100))
    assert all(abs(got * whole - total * (huge + 7 * number)) < whole for number, got in enumerate(found))


def test_huge_weights_are_exact() -> None:
    tree = Tree(queue("a", weight=10**14), queue("b", weight=10**14 + 1), queue("c", weight=1))
    total = 2 * 10**14 + 2
    assert tree.entitled(total, dict.fromkeys("abc", 2**60)) == [10**14, 10**14 + 1, 1]


def test_unlimited_fields_everywhere_divide_evenly() -> None:
    tree = Tree(*(queue(name, deserved=UNLIMITED, limit=UNLIMITED) for name in "abcd"))
    assert tree.entitled(10, dict.fromkeys("abcd", CEILING)) == [3, 3, 2, 2]


class TestHeadroom:
    """Nominal quota, borrowing limit and lending limit, as deserved, limit and guarantee."""

    @staticmethod
    def nominal(
        name: str, quota_: int, parent: str = "", *, borrowing: int | None = None, lending: int | None = None
    ) -> Queue:
        return queue(
            name,
            parent,
            deserved=quota_,
            limit=None if borrowing is None else quota_ + borrowing,
            guarantee=None if lending is None else quota_ - lending,
        )

    @staticmethod
    def of(tree: Tree, total: int, names: Sequence[str], usage: dict[str, int]) -> list[int]:
        found = tree.headroom(total, usage)
        return [max(0, found[name]) for name in names]

    @pytest.mark.parametrize(("usage", "expected"), [((0, 0, 0), [35, 12, 40]), ((20, 10, 6), [4, 2, 4])])
    def test_one_cohort(self, usage: tuple[int, int, int], expected: list[int]) -> None:
        names = ("cq1", "cq2", "cq3")
        tree = Tree(self.nominal("cq1", 10), self.nominal("cq2", 10, borrowing=2), self.nominal("cq3", 10, lending=5))
        assert self.of(tree, 40, names, dict(zip(names, usage, strict=True))) == expected

    def test_too_much_use_spills_over(self) -> None:
        tree = Tree(self.nominal("cq1", 10), self.nominal("cq2", 10, borrowing=0, lending=0))
        assert self.of(tree, 30, ("cq1", "cq2"), {"cq1": 31}) == [0, 0]

    @pytest.mark.parametrize(("usage", "expected"), [((0, 0), [30, 40]), ((10, 5), [20, 25])])
    def test_two_cohorts_below_one(self, usage: tuple[int, int], expected: list[int]) -> None:
        cq1, cq2 = self.nominal("cq1", 10, "left"), self.nominal("cq2", 10, "right", lending=0)
        tree = Tree(queue("left"), queue("right"), cq1, cq2)
        assert self.of(tree, 40, ("cq1", "cq2"), dict(zip(("cq1", "cq2"), usage, strict=True))) == expected

    def test_a_cohort_with_a_borrowing_limit(self) -> None:
        tree = Tree(
            self.nominal("left", 30, borrowing=5),
            self.nominal("left-cq1", 10, "left"),
            self.nominal("left-cq2", 10, "left", borrowing=5),
            queue("right"),
            self.nominal("right-cq", 10, "right"),
        )
        assert self.of(tree, 50, ("left-cq1", "left-cq2", "right-cq"), {}) == [35, 15, 50]

    def test_it_is_negative_where_a_limit_was_lowered(self) -> None:
        assert Tree(queue("a", limit=4)).headroom(20, {"a": 7})["a"] == -3

    def test_who_borrows_inside_a_queue_does_not_use_up_the_guarantee_of_another_there(self) -> None:
        tree = Tree(queue("a"), queue("a1", "a", guarantee=1), queue("a2", "a"), queue("b"))
        found = tree.headroom(2, {"a2": 1})
        assert (found["a1"], found["a2"], found["b"]) == (1, 0, 0)

    def test_nothing_is_kept_for_a_queue_whose_limit_is_used_up(self) -> None:
        tree = Tree(queue("a", limit=1), queue("a1", "a", guarantee=1), queue("a2", "a"), queue("b"))
        found = tree.headroom(2, {"a2": 1})
        assert (found["a1"], found["b"]) == (0, 1)

    def test_guarantees_that_lost_nodes_cannot_hold_do_not_block_each_other(self) -> None:
        tree = Tree(queue("a", guarantee=8), queue("b", guarantee=8))
        found = tree.headroom(10, {})
        assert (found["a"], found["b"]) == (5, 5)
        tree.fields.limit[0] = 10
        assert tree.headroom(20, {}) == found


def test_borrowed_is_what_is_used_beyond_what_is_owed() -> None:
    assert quota.borrowed(np.asarray([[5, 1]]), np.asarray([[3, 4]])).tolist() == [[2, 0]]


def test_the_dominant_share_is_the_largest() -> None:
    assert quota.dominant_share((1, 3), (4, 4)) == 0.75
    assert quota.dominant_share((0, 3), (0, 4)) == 0.75
    assert quota.dominant_share((1, 0), (0, 4)) == float("inf")
    assert quota.dominant_share((10**17 + 1,), (3 * (10**17 + 1),)) == 1 / 3


def counts(tree: Tree) -> list[bool]:
    found: list[bool] = Fields.of(tree.queues, ("x", "memory")).named(tree.structure)[:, 0].tolist()
    return found


def given_memory(one: Queue) -> Queue:
    """The same with a share of something else, so that not everything counts for it."""
    return replace(one, deserved=(*one.deserved, ("memory", 5)))


def test_a_resource_counts_where_a_share_of_it_is_given_within_reach() -> None:
    beside = Tree(queue("a", deserved=3), given_memory(queue("b")), given_memory(queue("b1", "b")))
    assert counts(beside) == [False, True, True, True]
    below = Tree(queue("a"), queue("b"), queue("a1", "a", deserved=1), queue("b1", "b", deserved=1))
    assert counts(below) == [False, True, True, True, True]
    elsewhere = Tree(queue("a"), queue("b"), given_memory(queue("a1", "a")), queue("b1", "b", guarantee=1))
    assert counts(elsewhere) == [False, True, True, False, True]


def test_a_limit_counts_for_the_queue_that_has_it_only() -> None:
    tree = Tree(given_memory(queue("a", limit=3)), given_memory(queue("b")))
    assert counts(tree) == [False, True, False]


def test_where_nothing_is_given_to_a_queue_everything_counts() -> None:
    assert counts(Tree(queue("a", limit=UNLIMITED), queue("b"))) == [True, True, True]
    tree = Tree(queue("a"), queue("b"), given_memory(queue("c")))
    assert counts(tree) == [False, True, True, False]


def test_an_inner_queue_without_an_amount_deserves_what_those_below_it_do() -> None:
    def entitled(said: int | None) -> list[int]:
        tree = Tree(
            queue("q0", deserved=said), queue("q00", "q0", deserved=0), queue("q01", "q0", deserved=2),
            queue("q1", deserved=10, weight=3),
        )  # fmt: skip
        return tree.entitled(12, {"q00": 12, "q1": 12})

    assert entitled(None) == entitled(2) == [2, 2, 0, 10]


@pytest.mark.parametrize("parents", [[-1, -1], [1, 0], [-1, 2, 1]])
def test_what_is_not_one_tree_is_refused(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="not one tree"):
        Structure.of(parents, ["a", "b", "c"][: len(parents)])
