"""How many pods of each demand: the part of a problem that knows no nodes.

Decided here: which pods are meant when there is a choice (earlier demands first), and what the minimums and limits
alone forbid. All numbers are Python integers, so that sums of bytes over thousands of pods stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.placement import parts as trees
from scheduler.placement.problem import AtMost, Minimum, Parts, PlacementProblem, Segments, all_demands


@dataclass(slots=True)
class Composition:
    """lows <= pods <= highs for each demand; floors: (demands, at least); ceilings: (weights, at most).

    parts: as asked. Among the floors are those that parts and segments force.
    """

    lows: list[int]
    highs: list[int]
    floors: list[tuple[tuple[int, ...], int]]
    ceilings: list[tuple[dict[int, int], int]]
    parts: tuple[Parts, ...] = ()

    @classmethod
    def of(cls, problem: PlacementProblem, fits: Sequence[int]) -> Composition:
        """`fits`: how many pods of each demand the nodes could take at most."""
        floors = [(tuple(sorted(set(r.demands))), r.count) for r in problem.rules if isinstance(r, Minimum)]
        ceilings = [
            ({demand: weight for demand, weight in r.weights if weight}, r.limit)
            for r in problem.rules
            if isinstance(r, AtMost)
        ]
        highs = [min(demand.count, fit) for demand, fit in zip(problem.demands, fits, strict=True)]
        for weights, limit in ceilings:
            for demand, weight in weights.items():
                highs[demand] = max(0, min(highs[demand], limit // weight))
        lows = [demand.minimum for demand in problem.demands]
        parts = tuple(rule for rule in problem.rules if isinstance(rule, Parts))
        for rule in parts:
            floors.extend(trees.forced(rule.parts, rule.least, lows))
        floors.sort(key=lambda floor: len(floor[0]))
        found = cls(lows, highs, [floor for floor in floors if floor[1] > 0], ceilings, parts)
        found._round_up([rule for rule in problem.rules if isinstance(rule, Segments)], problem)
        return found

    def _round_up(self, rules: Sequence[Segments], problem: PlacementProblem) -> None:
        """Raise what is needed of demands that come in multiples, by the largest multiple last."""
        for rule in sorted(rules, key=lambda rule: rule.size):
            demands = tuple(sorted(all_demands(problem, rule.demands)))
            least = self.least(demands)
            if not any(pods for _, pods in rule.present) and least % rule.size:
                self.floors.append((demands, least + rule.size - least % rule.size))
                self.floors.sort(key=lambda floor: len(floor[0]))

    def holds(self, counts: Sequence[int]) -> bool:
        """Whether these numbers keep every row."""
        return (
            all(low <= n <= high for low, n, high in zip(self.lows, counts, self.highs, strict=True))
            and all(sum(counts[d] for d in demands) >= count for demands, count in self.floors)
            and all(sum(w * counts[d] for d, w in weights.items()) <= limit for weights, limit in self.ceilings)
            and all(trees.whole(rule.parts, rule.least, counts) for rule in self.parts)
        )

    def contradicts(self, highs: Sequence[int] | None = None) -> bool:
        """Whether there are no such numbers, as far as single rows tell. `highs`: tighter ones, for one domain."""
        top = self.highs if highs is None else highs
        return (
            any(low > high for low, high in zip(self.lows, top, strict=True))
            or any(sum(top[d] for d in demands) < count for demands, count in self.floors)
            or any(sum(w * self.lows[d] for d, w in weights.items()) > limit for weights, limit in self.ceilings)
        )

    def room(self, counts: Sequence[int], demand: int) -> int:
        """How many more pods of a demand the limits allow."""
        left = self.highs[demand] - counts[demand]
        for weights, limit in self.ceilings:
            if demand in weights:
                used = sum(w * counts[d] for d, w in weights.items())
                left = min(left, (limit - used) // weights[demand])
        return max(0, left)

    def preferred(self) -> list[int] | None:
        """Return the numbers that the minimums ask for, earlier demands first; None when taking them so fails."""
        counts = list(self.lows)
        meant = [floor for rule in self.parts for floor in trees.wanted(rule.parts, rule.least, counts, self.highs)]
        for demands, count in [*meant, *self.floors]:
            missing = count - sum(counts[d] for d in demands)
            for demand in sorted(demands, key=lambda d: counts[d] == 0) if self.parts else demands:
                if missing <= 0:
                    break
                more = min(missing, self.room(counts, demand))
                counts[demand] += more
                missing -= more
        self.trim(counts)
        return counts if self.holds(counts) else None

    def extend(self, counts: list[int], total: int) -> None:
        """Add pods, earlier demands first, until there are `total` or the limits are reached."""
        missing = total - sum(counts)
        for demand in range(len(counts)):
            if missing <= 0:
                return
            more = min(missing, self.room(counts, demand))
            counts[demand] += more
            missing -= more

    def trim(self, counts: list[int]) -> None:
        """Take away, later parts and demands first, what no minimum asks for."""
        for part in trees.every(self.parts):
            left = [0 if demand in part.demands else count for demand, count in enumerate(counts)]
            if left != counts and self.enough(left):
                counts[:] = left
        for demand in reversed(range(len(counts))):
            counts[demand] -= max(0, self.spare(counts, demand))

    def enough(self, counts: Sequence[int]) -> bool:
        """Whether these numbers are as many as the minimums ask for, and parts whole or absent."""
        return (
            all(low <= n for low, n in zip(self.lows, counts, strict=True))
            and all(sum(counts[d] for d in demands) >= count for demands, count in self.floors)
            and all(trees.whole(rule.parts, rule.least, counts) for rule in self.parts)
        )

    def spare(self, counts: Sequence[int], demand: int) -> int:
        """How many pods of a demand could go without breaking a minimum; no part goes with them."""
        left = counts[demand] - self.lows[demand]
        for demands, count in self.floors:
            if demand in demands:
                left = min(left, sum(counts[d] for d in demands) - count)
        for part in trees.every(self.parts):
            if demand in part.demands:
                left = min(left, sum(counts[d] for d in part.demands) - max(1, part.minimum))
        return left

    def least(self, demands: Sequence[int]) -> int:
        """A number of pods of these demands that every answer has at least."""
        inside = set(demands)
        base = sum(self.lows[d] for d in demands)
        best = base
        for members, count in self.floors:
            ours = [d for d in members if d in inside]
            outside = sum(self.highs[d] for d in members if d not in inside)
            have = sum(self.lows[d] for d in ours)
            best = max(best, base - have + max(have, count - outside))
        return best

    def forced(self, placed: int | None = None) -> list[int]:
        """Return pods of each demand that every answer has (that places a given demand), as far as single rows tell."""
        lows, floors = list(self.lows), list(self.floors)
        for part in trees.every(self.parts) if placed is not None else ():
            if placed in part.demands:
                floors.extend(trees.forced((part,), 1, lows))
        for demands, count in floors:
            total = sum(self.highs[d] for d in demands)
            for demand in demands:
                lows[demand] = max(lows[demand], count - total + self.highs[demand])
        return lows

    @property
    def fixed(self) -> bool:
        """Whether limits and parts play no role, so that adding pods one demand at a time reaches the most."""
        return not self.ceilings and not self.parts

    def single(self) -> bool:
        """Whether there is one demand, for which every greedy choice is exact."""
        return len(self.lows) == 1 and not self.parts
