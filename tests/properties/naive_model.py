"""Whether there is any placement, asked of CP-SAT: one integer for each demand and node, every rule word for word.

Written for these tests; it shares no code with the engine and knows none of its shortcuts, so that it does not decide
every question in time."""

from __future__ import annotations

from ortools.sat.python import cp_model

from scheduler.placement import (
    Apart,
    AtMost,
    AtMostDomains,
    AtMostGroups,
    Minimum,
    Part,
    Parts,
    PlacementProblem,
    Segments,
    Within,
)


def feasible(problem: PlacementProblem) -> bool | None:
    """Return whether pods fit; None: not known after some seconds."""
    return _Naive(problem).solve()


class _Naive:
    def __init__(self, problem: PlacementProblem) -> None:
        self.problem = problem
        self.model = cp_model.CpModel()
        nodes = problem.nodes
        self.x = [
            [
                self.model.new_int_var(0, demand.count if demand.mask is None or demand.mask[node] else 0, "")
                for node in range(len(nodes.names))
            ]
            for demand in problem.demands
        ]
        self.totals = [sum(row) for row in self.x]
        for demand, row, total in zip(problem.demands, self.x, self.totals, strict=True):
            self.model.add(total >= demand.minimum)
            self.model.add(total <= demand.count)
            if demand.max_per_node is not None:
                for pods in row:
                    self.model.add(pods <= demand.max_per_node)
        for node in range(len(nodes.names)):
            self.model.add(sum(row[node] for row in self.x) <= max(0, int(nodes.slots[node])))
            for resource in range(len(nodes.resources)):
                asked = [
                    (int(demand.requests[resource]), row[node])
                    for demand, row in zip(problem.demands, self.x, strict=True)
                    if demand.requests[resource]
                ]
                if asked:
                    free = max(0, int(nodes.free[resource, node]))
                    self.model.add(sum(amount * pods for amount, pods in asked) <= free)
        for rule in problem.rules:
            self._rule(rule)

    def solve(self) -> bool | None:
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = 2.0
        status = solver.solve(self.model)
        if status == cp_model.UNKNOWN:
            return None
        assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE)
        return status != cp_model.INFEASIBLE

    def _of(self, demands):
        return range(len(self.x)) if demands is None else sorted(set(demands))

    def _inside(self, level, demands):
        """Return, for each domain (-1: no label), the pods of these demands there."""
        found = {}
        for node in range(len(self.problem.nodes.names)):
            domain = node if level == "" else int(self.problem.nodes.domains[level][node])
            found.setdefault(domain, []).extend(self.x[d][node] for d in self._of(demands))
        return found

    def _used(self, pods):
        flag = self.model.new_bool_var("")
        self.model.add(sum(pods) >= 1).only_enforce_if(flag)
        self.model.add(sum(pods) == 0).only_enforce_if(~flag)
        return flag

    def _rule(self, rule) -> None:
        model = self.model
        if isinstance(rule, Minimum):
            model.add(sum(self.totals[d] for d in set(rule.demands)) >= rule.count)
        elif isinstance(rule, AtMost):
            model.add(sum(weight * self.totals[d] for d, weight in rule.weights) <= rule.limit)
        elif isinstance(rule, Apart):
            for domain, pods in self._inside(rule.level, rule.demands).items():
                if domain >= 0:
                    model.add(sum(pods) <= rule.limit)
        elif isinstance(rule, Within):
            if rule.hard:
                self._few(rule, 1, ())
        elif isinstance(rule, AtMostDomains):
            self._few(rule, rule.limit, rule.present)
        elif isinstance(rule, AtMostGroups):
            self._groups(rule)
        elif isinstance(rule, Segments):
            before = dict(rule.present)
            for domain, pods in self._inside(rule.level, rule.demands).items():
                if domain < 0:
                    model.add(sum(pods) == 0)
                    continue
                times = model.new_int_var(0, 10_000, "")
                used = self._used(pods)
                model.add(sum(pods) + before.get(domain, 0) == rule.size * times).only_enforce_if(used)
        elif isinstance(rule, Parts):
            self._parts(rule.parts, rule.least, None)
        else:
            raise NotImplementedError(rule)

    def _groups(self, rule) -> None:
        come: dict[int, list] = {}
        for group, demands in enumerate(rule.groups):
            for domain, pods in self._inside(rule.level, demands).items():
                if domain >= 0 and pods and (domain, group) not in rule.present:
                    come.setdefault(domain, []).append(self._used(pods))
        for domain, flags in come.items():
            before = len({group for number, group in rule.present if number == domain})
            self.model.add(sum(flags) <= max(0, rule.limit - before))

    def _few(self, rule, limit, present) -> None:
        inside = self._inside(rule.level, rule.demands)
        self.model.add(sum(inside.pop(-1, [])) == 0)
        flags = {domain: self._used(pods) for domain, pods in inside.items()}
        some = self._used([pods for here in inside.values() for pods in here])
        new = sum(flag for domain, flag in flags.items() if domain not in present)
        self.model.add(new + len(present) <= limit).only_enforce_if(some)

    def _parts(self, parts: tuple[Part, ...], least: int, outer) -> None:
        flags = []
        for part in parts:
            pods = [self.totals[d] for d in set(part.demands)]
            flag = self._used(pods) if pods else self.model.new_constant(0)
            flags.append(flag)
            self.model.add(sum(pods) >= part.minimum).only_enforce_if(flag)
            self._parts(part.parts, part.least, flag)
        row = self.model.add(sum(flags) >= least)
        if outer is not None:
            row.only_enforce_if(outer)
