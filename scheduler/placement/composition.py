"""How many pods of each demand: the part of a problem that knows no nodes.

Decided here: which pods are meant when there is a choice (earlier demands first), and what the minimums and limits
alone forbid. All numbers are Python integers, so that sums of bytes over thousands of pods stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.placement.problem import AtMost, Minimum, PlacementProblem


@dataclass(slots=True)
class Composition:
    """lows <= pods <= highs for each demand; floors: (demands, at least); ceilings: (weights, at most)."""

    lows: list[int]
    highs: list[int]
    floors: list[tuple[tuple[int, ...], int]]
    ceilings: list[tuple[dict[int, int], int]]

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
        floors.sort(key=lambda floor: len(floor[0]))
        return cls(lows, highs, [floor for floor in floors if floor[1] > 0], ceilings)

    def holds(self, counts: Sequence[int]) -> bool:
        """Whether these numbers keep every row."""
        return (
            all(low <= n <= high for low, n, high in zip(self.lows, counts, self.highs, strict=True))
            and all(sum(counts[d] for d in demands) >= count for demands, count in self.floors)
            and all(sum(w * counts[d] for d, w in weights.items()) <= limit for weights, limit in self.ceilings)
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
        for demands, count in self.floors:
            missing = count - sum(counts[d] for d in demands)
            for demand in demands:
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
        """Take away, later demands first, what no minimum asks for."""
        for demand in reversed(range(len(counts))):
            counts[demand] -= max(0, self.spare(counts, demand))

    def spare(self, counts: Sequence[int], demand: int) -> int:
        """How many pods of a demand could go without breaking a minimum."""
        left = counts[demand] - self.lows[demand]
        for demands, count in self.floors:
            if demand in demands:
                left = min(left, sum(counts[d] for d in demands) - count)
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

    @property
    def fixed(self) -> bool:
        """Whether limits play no part, so that adding pods one demand at a time reaches the most."""
        return not self.ceilings

    def single(self) -> bool:
        """Whether there is one demand, for which every greedy choice is exact."""
        return len(self.lows) == 1
