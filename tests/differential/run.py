"""Compares Muster with kube-scheduler's own plugins on many random cases: `python -m tests.differential.run`.

Prints progress, and each difference as a minimal case that can be kept in `cases/`. The exit status is 1 when there was
one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.controlplane.oracle import Oracle
from tests.differential.compare import compare, compare_gang, judge
from tests.differential.generate import FAMILIES, generate, generate_gang
from tests.differential.muster import Muster
from tests.differential.shrink import shrink

Json = dict[str, Any]

CASES = Path(__file__).with_name("cases")
_BATCH = 200


def differences(
    seeds: Sequence[int], families: Sequence[str], oracle: Oracle
) -> Iterator[tuple[int, Json, str | None]]:
    """Yield seed, case and how the answers differ ("": they do not; None: not a valid case), for single pods."""
    muster = Muster()
    left = iter(seeds)
    while batch := list(islice(left, _BATCH)):
        cases = [generate(seed, families) for seed in batch]
        answers = list(oracle.ask_all(cases))
        for seed, case, theirs in zip(batch, cases, answers, strict=True):
            yield seed, case, judge(theirs, muster)


def gang_differences(
    seeds: Sequence[int], families: Sequence[str], oracle: Oracle
) -> Iterator[tuple[int, Json, str | None]]:
    """The same for gangs."""
    muster = Muster()
    for seed in seeds:
        case = generate_gang(seed, families)
        yield seed, case, compare_gang(case, oracle, muster)


def smallest(case: Json, oracle: Oracle) -> tuple[Json, str]:
    """Return the smallest case that shows the same sort of difference, and that difference in words."""
    muster = Muster()
    sort = _sort(compare(case, oracle, muster))
    small = shrink(case, lambda smaller: _sort(compare(smaller, oracle, muster)) == sort)
    return small, compare(small, oracle, muster) or ""


def _sort(text: str | None) -> str:
    return (text or "").split(":")[0].split(" on ")[0]


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="single pods (20000)")
    parser.add_argument("--gangs", type=int, default=2_000, help="gangs (2000)")
    parser.add_argument("--seed", type=int, default=1_000_000, help="seed of the first case; the next ones follow")
    parser.add_argument("--families", default=",".join(FAMILIES), help=f"fields to vary ({','.join(FAMILIES)})")
    parser.add_argument("--show", type=int, default=5, help="differences to make small and print (5)")
    options = parser.parse_args()
    families = options.families.split(",")
    if unknown := set(families) - set(FAMILIES):
        parser.error(f"unknown families: {', '.join(sorted(unknown))}")
    found = 0
    with Oracle() as oracle:
        for name, count, compared in (("pods", options.cases, differences), ("gangs", options.gangs, gang_differences)):
            seeds = range(options.seed, options.seed + count)
            for case in _watched(name, count, compared(seeds, families, oracle)):
                found += 1
                if found <= options.show:
                    _show(*smallest(case, oracle))
    return 1 if found else 0


def _watched(name: str, count: int, compared: Iterator[tuple[int, Json, str | None]]) -> Iterator[Json]:
    """Yield the cases that differ; report progress."""
    began = said = time.monotonic()
    invalid = differ = 0
    for number, (seed, case, text) in enumerate(compared, 1):
        invalid += text is None
        if text:
            differ += 1
            print(f"{name} {seed}: {text}", flush=True)
            yield case
        now = time.monotonic()
        if now - said > 5 or number == count:
            said = now
            pace = 60 * number / (now - began)
            print(
                f"{name}: {number} of {count}, {differ} differ, {invalid} not valid, {pace:.0f} a minute",
                file=sys.stderr,
                flush=True,
            )


def _show(case: Json, text: str) -> None:
    print(f"  smallest: {text}\n  {json.dumps(case)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
