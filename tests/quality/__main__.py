"""`python -m tests.quality --nodes FILE --pods FILE ...` prints how well each method places the workloads."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.quality.experiment import SEEDS
from tests.quality.methods import METHODS
from tests.quality.table import measure, measure_batches, measure_gangs, text
from tests.quality.trace import BadTrace


def main() -> int:
    """Print the table; 2 when a file cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality", description=__doc__)
    parser.add_argument("--nodes", type=Path, required=True, help="list of nodes (CSV)")
    parser.add_argument("--pods", type=Path, required=True, nargs="+", help="lists of pods (CSV), a workload each")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="default: 42 to 51")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the runs")
    parser.add_argument("--batches", type=int, nargs="+", metavar="SIZE", help="what batches of so many arrivals gain")
    parser.add_argument("--gangs", type=int, metavar="NODES", help="the gang variant, on so many of the nodes")
    asked = parser.parse_args()
    begun = time.monotonic()
    try:
        if asked.gangs:
            print(measure_gangs(asked.nodes, asked.pods, asked.gangs, asked.seeds, asked.workers))
        elif asked.batches:
            print(
                text(measure_batches(asked.nodes, asked.pods, asked.batches, asked.seeds, asked.workers), asked.seeds)
            )
        else:
            print(text(measure(asked.nodes, asked.pods, asked.methods, asked.seeds, asked.workers), asked.seeds))
    except BadTrace as error:
        print(error, file=sys.stderr)
        return 2
    print(f"\n{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
