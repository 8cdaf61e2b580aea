"""`muster playground`: an embedded control plane with fake nodes for a person, with every kind that Muster reads.

Decided here: what is installed there and which commands are shown. How it lives is the playground's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scheduler.cli.output import FAILED, USAGE, complain
from scheduler.cli.shipped import NotShipped, shipped
from scheduler.observe import logs
from scheduler.playground.run import run_playground

COMMANDS = (
    "muster run --kubeconfig $KUBECONFIG --scheduler-name muster --scheduler-name volcano",
    "kubectl apply -f config/samples/volcano-gang.yaml && kubectl get pods -o wide",
)


def serve_playground(*, nodes: int, gpus: int, resource: str, port: int, kubeconfig: Path | None) -> int:
    """Serve until Ctrl-C or SIGTERM; exit code."""
    logs.configure(level="warning")
    try:
        return run_playground(
            nodes=nodes,
            resources={resource: str(gpus)} if gpus else {},
            port=port,
            kubeconfig=kubeconfig,
            crds=[shipped("config/crd")],
            commands=COMMANDS,
            echo=_echo,
        )
    except NotShipped as error:
        complain(str(error))
        return USAGE
    except OSError as error:
        complain(f"the playground could not start: {error}")
        return FAILED


def _echo(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
