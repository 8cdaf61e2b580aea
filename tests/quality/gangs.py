"""The gang variant: arrivals are grouped into gangs of roles, each starts whole or waits; who waits although it fits?

A gang is up to three kinds of pods (roles) that arrive after each other, each with a range of counts: all between the
minimum and the count may start, fewer may not; now and then the roles are to reach a number together. Every gang is one
question to the engine with the plugin's scores. A gang that the engine refuses is put to an oracle that shares nothing
with it: one model with an integer for every role, node and device, solved without any limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from ortools.sat.python import cp_model

from scheduler.placement import Demand, Minimum, Placement, PlacementProblem, assign, place
from tests.quality.asking import demand, problem
from tests.quality.experiment import Cluster, arrivals, begin
from tests.quality.methods import Muster
from tests.quality.trace import Ints, Nodes, Workload

_MOST_ROLES, _MOST_PODS = 3, 6


@dataclass(frozen=True, slots=True)
class Gang:
    """roles: (kind, minimum, count). together: so many pods at least, over all roles."""

    roles: tuple[tuple[int, int, int], ...]
    together: int


@dataclass(slots=True)
class Tally:
    """missed: gangs that were refused although the oracle finds a placement. unproven: refused without a proof."""

    gangs: int = 0
    placed: int = 0
    refused: int = 0
    unproven: int = 0
    missed: int = 0


def gangs(workload: Workload, kinds: Ints, seed: int) -> list[Gang]:
    """Return arrivals grouped into gangs."""
    random = np.random.default_rng((seed, 2))
    found, place_in = [], 0
    while place_in < kinds.size:
        width = int(random.integers(1, _MOST_ROLES + 1))
        roles = []
        for kind in dict.fromkeys(kinds[place_in : place_in + width].tolist()):
            few = int(workload.count[kind]) > 1
            count = int(random.integers(1, 3 if few else _MOST_PODS + 1))
            roles.append((kind, int(random.integers(0 if width > 1 else 1, count + 1)), count))
        place_in += width
        least, most = sum(low for _, low, _ in roles), sum(high for *_, high in roles)
        found.append(Gang(tuple(roles), int(random.integers(max(1, least), most + 1))))
    return found


def question(cluster: Cluster, workload: Workload, method: Muster, gang: Gang) -> PlacementProblem:
    """Return the gang as the engine is asked for it."""
    demands: list[Demand] = []
    for kind, minimum, count in gang.roles:
        growth = method.growth(kind)
        one = demand(cluster, workload, kind, count, growth if np.isfinite(growth).any() else None)
        demands.append(replace(one, minimum=minimum))
    asked = problem(cluster, demands, maximize=False)
    return replace(asked, rules=(Minimum(tuple(range(len(demands))), gang.together),))


def run_gangs(nodes: Nodes, workload: Workload, seed: int, ratio: float = 1.3) -> Tally:
    """Let gangs arrive one after the other; nobody leaves."""
    cluster, random = begin(nodes, seed)
    method = Muster(cluster, workload, random)
    tally = Tally()
    for gang in gangs(workload, arrivals(workload, nodes.capacity, seed, ratio), seed):
        for kind, _, count in gang.roles:
            for _ in range(count):
                method.arrive(kind)
        asked = question(cluster, workload, method, gang)
        answer = place(asked)
        tally.gangs += 1
        if isinstance(answer, Placement):
            tally.placed += 1
            _take(cluster, workload, gang, asked, answer)
            continue
        tally.refused += 1
        tally.unproven += not answer.proven
        tally.missed += fits(cluster, workload, gang)
    return tally


def _take(cluster: Cluster, workload: Workload, gang: Gang, asked: PlacementProblem, answer: Placement) -> None:
    on_node: dict[int, list[tuple[int, Sequence[int]]]] = {}
    for (kind, *_), row, seats in zip(gang.roles, answer.counts, assign(asked, answer), strict=True):
        for node, pods in row:
            for number in range(pods):
                on_node.setdefault(node, []).append((kind, seats[node][number] if node in seats else ()))
    for node, pods_here in on_node.items():
        cluster.seat(workload, node, pods_here)


def fits(cluster: Cluster, workload: Workload, gang: Gang) -> bool:
    """The oracle: whether there is a placement."""
    model = cp_model.CpModel()
    placed: list[list[cp_model.IntVar]] = [[] for _ in gang.roles]
    for node in range(cluster.sort.size):
        used: list[list[tuple[int, cp_model.IntVar]]] = [[] for _ in cluster.left[node]]
        here = []
        for role, (kind, _, high) in enumerate(gang.roles):
            pods = model.new_int_var(0, high, "")
            placed[role].append(pods)
            here.append((kind, pods))
            amount, count = int(workload.amount[kind]), int(workload.count[kind])
            if not amount:
                continue
            if not workload.suits[kind, cluster.sort[node]]:
                model.add(pods == 0)
                continue
            seats = []
            for device in range(len(used)):
                seat = model.new_int_var(0, high if count == 1 else 1, "")
                seats.append(seat)
                used[device].append((amount, seat))
            model.add(sum(seats) == count * pods)
        for row in range(2):
            model.add(
                sum(int(workload.other[row, kind]) * pods for kind, pods in here) <= int(cluster.other[row, node])
            )
        for device, takes in enumerate(used):
            model.add(sum(amount * seat for amount, seat in takes) <= int(cluster.left[node, device]))
    for (_, low, high), pods_of in zip(gang.roles, placed, strict=True):
        model.add_linear_constraint(sum(pods_of), low, high)
    model.add(sum(pods for pods_of in placed for pods in pods_of) >= gang.together)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE):
        raise AssertionError(f"the oracle did not decide: {solver.status_name(status)}")
    return status != cp_model.INFEASIBLE
