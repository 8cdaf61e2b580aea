"""Speed and memory, in one table: `make bench`, or

    python -m tests.perf.bench [--only CASE ...] [--quick] [--json FILE]

Ratios are between subjects of one run, on one machine. Progress goes to standard error. Exit status 1 when a target is
missed.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.perf import report, usage
from tests.perf.report import Row


def _end_to_end(quick: bool) -> list[Row]:
    from tests.perf import bench_endtoend

    return bench_endtoend.rows(quick)


def _latency(quick: bool) -> list[Row]:
    from tests.perf import bench_live

    return bench_live.latency(quick)


def _idle(quick: bool) -> list[Row]:
    from tests.perf import bench_live

    return bench_live.idle(quick)


def _takeover(quick: bool) -> list[Row]:
    from tests.perf import bench_takeover

    return bench_takeover.rows(quick)


def _memory(quick: bool) -> list[Row]:
    from tests.perf import bench_live

    return bench_live.memory(quick)


def _reclaim_end_to_end(quick: bool) -> list[Row]:
    from tests.perf import bench_reclaim

    return bench_reclaim.rows(quick)


def _engine(quick: bool) -> list[Row]:
    from scheduler.placement import warm_up
    from tests.perf import bench_engine

    warm_up()
    return [
        Row(f"engine, 5000 nodes: {case.name}", *bench_engine.figure(case, 3 if quick else 7), usage.machine())
        for case in bench_engine.all_cases()
    ]


def _session(quick: bool) -> list[Row]:
    from scheduler.placement import warm_up
    from tests.perf import bench_session

    warm_up()
    size = (500, 5000, 100) if quick else (5000, 50_000, 1000)
    found = [*bench_session.into_an_empty_cluster(), *bench_session.over_a_full_cluster(*size)]
    return [
        Row(
            f"session: {name}",
            f"{wall * 1000:.1f} ms (cpu {cpu * 1000:.1f} ms)",
            f"< {float(target) * 1000:.0f} ms" if target else "",
            wall < float(target) if target else None,
            usage.machine(),
        )
        for name, (wall, cpu), target in found
    ]


def _moves(quick: bool) -> list[Row]:
    from tests.perf import bench_moves

    return bench_moves.rows(quick)


def _parity(quick: bool) -> list[Row]:
    from tests.perf import bench_parity

    return bench_parity.rows(quick)


def _parity_session(quick: bool) -> list[Row]:
    from scheduler.placement import warm_up
    from tests.perf import bench_parity_session as sessions

    warm_up()
    return sessions.rows(500, 200, 1) if quick else sessions.rows(sessions.NODES, sessions.PODS, sessions.REPEAT)


def _quota(quick: bool) -> list[Row]:
    from tests.perf import bench_quota

    return bench_quota.rows(quick)


def _victims(quick: bool) -> list[Row]:
    from tests.perf import bench_victims

    return [
        Row(f"victims, {name}", figure, target, met, usage.machine())
        for name, figure, target, met in bench_victims.all_figures(1 if quick else 3, quick=quick)
    ]


def _topology(quick: bool) -> list[Row]:
    from scheduler.placement import warm_up
    from tests.perf import bench_domains, bench_topology

    warm_up()
    return [*bench_domains.rows(quick), *bench_topology.rows(quick)]


def _racks(quick: bool) -> list[Row]:
    from tests.perf import bench_endtoend

    return bench_endtoend.racks(quick)


def _queues(quick: bool) -> list[Row]:
    from tests.perf import bench_queues

    return bench_queues.rows(quick)


def _page(quick: bool) -> list[Row]:
    from tests.perf import bench_page

    return bench_page.rows(quick)


CASES: dict[str, Callable[[bool], list[Row]]] = {
    "engine": _engine,
    "topology": _topology,
    "session": _session,
    "quota": _quota,
    "victims": _victims,
    "queues": _queues,
    "moves": _moves,
    "page": _page,
    "latency": _latency,
    "idle": _idle,
    "takeover": _takeover,
    "memory": _memory,
    "parity-session": _parity_session,
    "reclaim-endtoend": _reclaim_end_to_end,
    "endtoend": _end_to_end,
    "racks": _racks,
    "parity": _parity,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(CASES), help="run this case (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    given = parser.parse_args()
    rows: list[Row] = []
    names = given.only or list(CASES)
    for number, name in enumerate(names, 1):
        command = f"bench --only {name}" + (" --quick" if given.quick else "")
        print(f"[bench] {number} of {len(names)}: {name}", file=sys.stderr, flush=True)
        found = [replace(row, command=command) for row in _measured(name, given.quick)]
        if len(names) > 1:
            print(report.table(found), file=sys.stderr, flush=True)
        rows += found
    print(report.table(rows))
    if given.json:
        given.json.write_text(report.as_json(rows))
    return 1 if any(row.met is False for row in rows) else 0


def _measured(name: str, quick: bool) -> list[Row]:
    """The rows of a case; where it fails, one that says so, so that the others are measured all the same."""
    try:
        return CASES[name](quick)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the exit status is 1
        traceback.print_exc()
        return [Row(f"{name}: failed", f"{type(error).__name__}: {error}", "to run", False, usage.machine())]


if __name__ == "__main__":
    sys.exit(main())
