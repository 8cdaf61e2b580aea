"""Entitlements against a slow reference in fractions, and what must hold for every tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduler.model import quota
from scheduler.model.queues import UNLIMITED
from scheduler.model.quota import UNSET, Fields, Structure
from tests.unit.model.rooms import account, rooms


@dataclass(frozen=True)
class Line:
    """One queue of one resource."""

    parent: int
    name: str
    guarantee: int = UNSET
    deserved: int = UNSET
    limit: int = UNSET
    weight: int = 1000
    priority: int = 0
    demand: int = 0
    usage: int = 0


@dataclass(frozen=True)
class Case:
    """Rows of a tree, the root first."""

    lines: tuple[Line, ...]
    total: int

    def structure(self) -> Structure:
        return Structure.of([line.parent for line in self.lines], [line.name for line in self.lines])

    def fields(self) -> Fields:
        def column(label: str) -> np.ndarray:
            return np.asarray([[getattr(line, label)] for line in self.lines], dtype=np.int64)

        labels = ("guarantee", "deserved", "limit", "weight")
        return Fields(*(column(label) for label in labels), column("priority")[:, 0])

    def column(self, label: str) -> np.ndarray:
        return np.asarray([[getattr(line, label)] for line in self.lines], dtype=np.int64)

    def entitled(self) -> list[int]:
        found = quota.entitlements(self.structure(), self.fields(), self.column("demand"), np.asarray([self.total]))
        return found[:, 0].tolist()

    def children(self, row: int) -> list[int]:
        return [number for number, line in enumerate(self.lines) if line.parent == row]

    def limit(self, row: int) -> int:
        return self.lines[row].limit if self.lines[row].limit >= 0 else 2**62


AMOUNT = st.integers(0, 30) | st.sampled_from([7 * 2**30, 2**40 + 1, 2**54 + 3])
FIELD = st.just(UNSET) | st.just(UNLIMITED) | AMOUNT


@st.composite
def cases(draw: st.DrawFn, *, flat: bool = False, inner_use: bool = True) -> Case:
    size = draw(st.integers(1, 9))
    names = draw(st.permutations([f"q{number}" for number in range(size)]))
    lines = [Line(-1, "root", limit=draw(FIELD))]
    for number in range(size):
        parent = 0 if flat else draw(st.integers(0, number))
        weight = draw(st.sampled_from([0, 1, 500, 1000, 2000, 7000, 2**45 + 1]))
        guarantee = draw(st.just(UNSET) | st.integers(0, 10))
        fields = (guarantee, draw(FIELD), draw(FIELD), weight, draw(st.integers(0, 2)))
        lines.append(Line(parent, names[number], *fields, draw(AMOUNT), draw(st.integers(0, 12))))
    case = Case(tuple(lines), draw(AMOUNT))
    if not inner_use:
        bare = [replace(line, demand=0, usage=0) if case.children(row) else line for row, line in enumerate(lines)]
        case = replace(case, lines=tuple(bare))
    return case


class Reference:
    """The rules, one queue and one step at a time."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.entitled = [0] * len(case.lines)
        self.entitled[0] = min(case.total, case.limit(0))
        self.divide(0)

    def guarantee(self, row: int) -> int:
        mine = self.case.lines[row].guarantee
        below = sum(self.guarantee(child) for child in self.case.children(row))
        return min(self.case.limit(row), max(mine, below, 0))

    def want(self, row: int) -> int:
        below = sum(self.want(child) for child in self.case.children(row))
        return max(self.guarantee(row), min(self.case.limit(row), self.case.lines[row].demand + below))

    def deserves(self, row: int) -> int:
        deserved = self.case.lines[row].deserved
        if deserved == UNSET:
            deserved = sum(self.deserves(child) for child in self.case.children(row))
        most = self.case.limit(row) if deserved == UNLIMITED else min(self.case.limit(row), deserved)
        return max(self.guarantee(row), most)

    def owed(self, row: int) -> int:
        return max(self.guarantee(row), min(self.want(row), self.deserves(row)))

    def divide(self, row: int) -> None:
        children = self.case.children(row)
        left = max(0, self.entitled[row] - self.case.lines[row].demand)
        weight = {child: self.case.lines[child].weight for child in children}
        first = {child: self.guarantee(child) for child in children}
        left -= self.hand_out(first, first, left)
        second = {child: self.owed(child) - first[child] for child in children}
        left -= self.hand_out(second, second, left)
        third = {child: self.want(child) - self.owed(child) for child in children if weight[child] > 0}
        self.hand_out(third, weight, left)
        for child in children:
            self.divide(child)

    def hand_out(self, want: dict[int, int], weight: dict[int, int], left: int) -> int:
        total = 0
        for priority in sorted({self.case.lines[child].priority for child in want}, reverse=True):
            mine = {child: one for child, one in want.items() if self.case.lines[child].priority == priority and one}
            for child, got in self.fill(mine, weight, left - total).items():
                self.entitled[child] += got
                total += got
        return total

    def fill(self, want: dict[int, int], weight: dict[int, int], budget: int) -> dict[int, int]:
        got: dict[int, int] = {}
        rest = dict(want)
        while rest:
            level = Fraction(budget - sum(got.values()), sum(weight[child] for child in rest))
            met = {child: one for child, one in rest.items() if one <= level * weight[child]}
            if not met:
                break
            got |= met
            rest = {child: one for child, one in rest.items() if child not in met}
        if rest:
            parts = {child: level * weight[child] for child in rest}
            got |= {child: int(part) for child, part in parts.items()}
            order = sorted(rest, key=lambda child: (int(parts[child]) - parts[child], self.case.lines[child].name))
            for child in order[: budget - sum(got.values())]:
                got[child] += 1
        return got


@given(cases())
def test_it_is_what_the_rules_say(case: Case) -> None:
    assert case.entitled() == Reference(case).entitled


@given(cases())
def test_no_queue_has_more_than_its_limit_or_than_the_queue_above(case: Case) -> None:
    found = case.entitled()
    for row in range(len(case.lines)):
        assert 0 <= found[row] <= case.limit(row)
        assert sum(found[child] for child in case.children(row)) <= found[row]


@given(cases(inner_use=False))
def test_a_guarantee_that_fits_is_held(case: Case) -> None:
    reference, found = Reference(case), case.entitled()
    fits = [True] * len(case.lines)
    fits[0] = reference.guarantee(0) <= found[0]
    for row, line in enumerate(case.lines):
        if row:
            beside = sum(reference.guarantee(child) for child in case.children(line.parent))
            fits[row] = fits[line.parent] and beside <= reference.guarantee(line.parent)
            assert not fits[row] or found[row] >= min(line.guarantee, case.limit(row))


@given(cases())
def test_nothing_is_left_while_somebody_with_a_weight_wants_it(case: Case) -> None:
    reference, found = Reference(case), case.entitled()
    for row, line in enumerate(case.lines):
        children = case.children(row)
        if line.demand + sum(found[child] for child in children) < found[row]:
            for child in children:
                assert found[child] == reference.want(child) or case.lines[child].weight == 0


@given(cases())
def test_no_surplus_reaches_a_lower_priority_before_a_higher_one_has_enough(case: Case) -> None:
    reference, found = Reference(case), case.entitled()
    for row in range(len(case.lines)):
        for low in case.children(row):
            for high in case.children(row):
                above = case.lines[high].priority > case.lines[low].priority and case.lines[high].weight > 0
                if above and found[low] > reference.owed(low):
                    assert found[high] == reference.want(high)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(case: Case, random: object) -> None:
    order = list(range(1, len(case.lines)))
    random.shuffle(order)  # type: ignore[attr-defined]
    order = [*order, 0]
    row = {old: new for new, old in enumerate(order)}
    lines = [replace(case.lines[old], parent=row.get(case.lines[old].parent, -1)) for old in order]
    found = Case(tuple(lines), case.total).entitled()
    assert {line.name: got for line, got in zip(lines, found, strict=True)} == {
        line.name: got for line, got in zip(case.lines, case.entitled(), strict=True)
    }


@given(cases(flat=True), st.integers(0, 8), st.integers(1, 40))
def test_who_asks_for_more_or_weighs_more_gets_no_less(case: Case, which: int, more: int) -> None:
    """But for one unit, which rounding by largest remainder can move."""
    row = 1 + which % (len(case.lines) - 1)
    line, before = case.lines[row], case.entitled()[row]
    for changed in (replace(line, demand=line.demand + more), replace(line, weight=line.weight + more)):
        lines = (*case.lines[:row], changed, *case.lines[row + 1 :])
        assert Case(lines, case.total).entitled()[row] >= before - 1


@given(cases(flat=True), st.integers(1, 40))
def test_nobody_gets_less_of_a_larger_cluster(case: Case, more: int) -> None:
    """But for one unit, which rounding by largest remainder can move."""
    larger = replace(case, total=case.total + more).entitled()
    assert all(after >= before - 1 for before, after in zip(case.entitled(), larger, strict=True))


def slow_headroom(case: Case, held: list[int]) -> list[int]:
    def used(row: int) -> int:
        return case.lines[row].usage + sum(used(child) for child in case.children(row))

    def idle(row: int) -> int:
        mine = max(held[row] - used(row), sum(idle(child) for child in case.children(row)))
        return min(mine, max(0, case.limit(row) - used(row)))

    found: list[int] = []
    for row, line in enumerate(case.lines):
        room = case.limit(row) - used(row)
        if row == 0:
            room = min(room, case.total - used(0))
        else:
            others = [child for child in case.children(line.parent) if child != row]
            room = min(room, found[line.parent] - sum(idle(child) for child in others))
        found.append(room)
    return found


@given(cases())
def test_headroom_is_what_the_rules_say_also_after_charges(case: Case) -> None:
    structure, fields, total = case.structure(), case.fields(), np.asarray([case.total])
    held = quota.held(structure, fields, total)[:, 0].tolist()
    expected = slow_headroom(case, held)
    found = rooms(structure, fields, case.column("usage"), total)[:, 0].tolist()
    book = account(structure, fields, np.zeros((len(case.lines), 1), dtype=np.int64), total)
    for row, line in enumerate(case.lines):
        book.charge(row, np.array([line.usage]))
    charged = [int(book.room(row)[0]) for row in range(len(case.lines))]
    capped = [min(room, 2**61) for room in expected]
    assert [min(room, 2**61) for room in found] == capped
    assert [min(room, 2**61) for room in charged] == capped


@given(cases(inner_use=False), st.integers(0, 8))
def test_who_uses_all_of_its_room_takes_nobodys_guarantee_and_passes_no_limit(case: Case, which: int) -> None:
    structure, fields, total = case.structure(), case.fields(), np.asarray([case.total])
    usage = case.column("usage")
    before = rooms(structure, fields, usage, total)[:, 0]
    assume((before >= 0).all())
    row = 1 + which % (len(case.lines) - 1)
    assume(not case.children(row))
    usage[row] += before[row]
    after = rooms(structure, fields, usage, total)[:, 0]
    held = quota.held(structure, fields, total)[:, 0] - quota.subtree(structure, usage)[:, 0]
    least = [held[0], *(min(held[number], before[number]) for number in range(1, len(case.lines)))]
    assert (after >= np.minimum(least, 0)).all()
    assert all(after[number] >= min(least[number], before[number]) for number in range(1, len(case.lines)))


@given(cases(), st.lists(st.floats(0, 1), min_size=10, max_size=10), st.sampled_from(["surplus", "weights"]))
def test_history_moves_surplus_and_makes_and_loses_none(case: Case, used: list[float], on: str) -> None:
    reference = Reference(case)
    history = quota.History(np.asarray(used[: len(case.lines)])[:, None], 1.0, on)
    found = quota.entitlements(
        case.structure(), case.fields(), case.column("demand"), np.asarray([case.total]), history
    )[:, 0].tolist()
    for row, line in enumerate(case.lines):
        children = case.children(row)
        budget = max(0, found[row] - line.demand)
        wants = sum((reference.want if case.lines[child].weight else reference.owed)(child) for child in children)
        assert sum(found[child] for child in children) == min(budget, wants)
        assert all(found[child] <= reference.want(child) for child in children)


@given(cases(flat=True), st.integers(0, 8), st.floats(0, 1), st.floats(0, 1), st.sampled_from(["surplus", "weights"]))
def test_who_used_more_gets_no_more(case: Case, which: int, one: float, other: float, on: str) -> None:
    row = 1 + which % (len(case.lines) - 1)
    got = []
    for used in (min(one, other), max(one, other)):
        part = np.zeros((len(case.lines), 1))
        part[row] = used
        arguments = (case.structure(), case.fields(), case.column("demand"), np.asarray([case.total]))
        got.append(int(quota.entitlements(*arguments, quota.History(part, 1.0, on))[row, 0]))
    most = max(case.entitled()[row], got[0])
    assert got[1] <= got[0] + 1 + most * 2**-20
