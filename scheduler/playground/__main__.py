"""`python -m scheduler.playground`: start a playground for a user or a test."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scheduler.playground.run import run_playground


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments and run until interrupted."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.playground", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (0: a free one)")
    parser.add_argument("--kubeconfig", type=Path, help="where to write the kubeconfig (default: a temporary file)")
    parser.add_argument("--nodes", type=int, default=2, help="number of fake nodes")
    parser.add_argument("--gpus-per-node", type=int, default=2, help="example.com/gpu of each node")
    parser.add_argument(
        "--resource", action="append", default=[], metavar="NAME=AMOUNT", help="of each node; repeatable"
    )
    parser.add_argument("--crd", action="append", default=[], type=Path, help="YAML file or directory to apply first")
    given = parser.parse_args(argv)
    resources = {"example.com/gpu": str(given.gpus_per_node)} if given.gpus_per_node else {}
    for text in given.resource:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            parser.error(f"--resource {text!r} is not NAME=AMOUNT")
        resources[name] = value
    return run_playground(
        nodes=given.nodes, resources=resources, port=given.port, kubeconfig=given.kubeconfig, crds=given.crd
    )


if __name__ == "__main__":
    sys.exit(main())
