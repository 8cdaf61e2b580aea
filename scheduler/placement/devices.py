"""Devices of a node as bins: what one kind takes of them alone, whether several fit together, and who gets which.

Decided here: the layout. Whole devices come first, they are all alike; shares are then packed exactly, each where the
least is left, and another layout is tried only when that way fails. Nothing here knows nodes, rules or scores. A node
has few devices, so that the search of a layout is small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.placement.problem import DeviceAsk, Placement, PlacementProblem

Ints: TypeAlias = NDArray[np.int64]
Seats: TypeAlias = tuple[tuple[int, ...], ...]
"""For each pod the numbers of its devices."""


def alone(free: Ints, ask: DeviceAsk) -> Ints:
    """Return how many pods each node takes, of devices by nodes, when nobody else comes."""
    pods: Ints = (free // ask.amount).sum(axis=0) // ask.count
    return pods


def layout(free: Sequence[int], asks: Sequence[tuple[DeviceAsk, int]]) -> list[list[tuple[int, ...]]] | None:
    """Return the devices of every pod of (ask, pods) on one node; None when there is no layout.

    `free`: what is left of each device of the pool that all of them ask for. Exact.
    """
    seats: list[list[tuple[int, ...]]] = [[] for _ in asks]
    left = list(free)
    singles: list[tuple[int, int]] = []
    for number, (ask, pods) in enumerate(asks):
        if ask.count == 1:
            singles.extend((ask.amount, number) for _ in range(pods))
            continue
        for _ in range(pods):
            whole = [device for device, rest in enumerate(left) if rest >= ask.amount][: ask.count]
            if len(whole) < ask.count:
                return None
            for device in whole:
                left[device] -= ask.amount
            seats[number].append(tuple(whole))
    singles.sort(key=lambda single: (-single[0], single[1]))
    chosen = _pack(left, [amount for amount, _ in singles])
    if chosen is None:
        return None
    for (_, number), device in zip(singles, chosen, strict=True):
        seats[number].append((device,))
    return seats


def left_of(free: Sequence[int], asks: Sequence[tuple[DeviceAsk, int]]) -> list[int] | None:
    """Return what is left of each device when these pods are laid out; None when they do not fit."""
    seats = layout(free, asks)
    if seats is None:
        return None
    left = list(free)
    for (ask, _), pods in zip(asks, seats, strict=True):
        for devices in pods:
            for device in devices:
                left[device] -= ask.amount
    return left


def _pack(free: list[int], amounts: Sequence[int]) -> list[int] | None:
    """Return the device of each amount (the largest first), the tightest device tried first; None: there is no way."""
    left = list(free)
    chosen: list[int] = []
    dead: set[tuple[int, tuple[int, ...]]] = set()

    def search(place: int) -> bool:
        if place == len(amounts):
            return True
        state = (place, tuple(sorted(left)))
        if state in dead:
            return False
        amount = amounts[place]
        tried: set[int] = set()
        for device in sorted(range(len(left)), key=lambda d: (left[d], d)):
            if left[device] < amount or left[device] in tried:
                continue
            tried.add(left[device])
            left[device] -= amount
            chosen.append(device)
            if search(place + 1):
                return True
            chosen.pop()
            left[device] += amount
        dead.add(state)
        return False

    return chosen if search(0) else None


def assign(problem: PlacementProblem, placement: Placement) -> tuple[dict[int, Seats], ...]:
    """Return, for each demand, the devices of its pods on each node; {} for a demand that asks for none."""
    seats: list[dict[int, Seats]] = [{} for _ in problem.demands]
    for pool, devices in problem.nodes.devices.items():
        on_node: dict[int, list[tuple[int, DeviceAsk, int]]] = {}
        for number, (demand, row) in enumerate(zip(problem.demands, placement.counts, strict=True)):
            if demand.devices is not None and demand.devices.pool == pool:
                for node, pods in row:
                    on_node.setdefault(node, []).append((number, demand.devices, pods))
        for node, here in on_node.items():
            found = layout(devices.free[:, node].tolist(), [(ask, pods) for _, ask, pods in here])
            if found is None:
                raise ValueError(f"{problem.nodes.names[node]}: {pool} do not hold what is placed there")
            for (number, _, _), pods_of in zip(here, found, strict=True):
                seats[number][node] = tuple(pods_of)
    return tuple(seats)
