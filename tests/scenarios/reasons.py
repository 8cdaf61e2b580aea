"""Whether `muster why` names the blocker that the scheduler wrote, for whoever still waits when a story ends.

Decided here: what agreement means. The command runs a session of its own on the objects; at rest it must find the same
reason for each group that waits, and must not find a place that the scheduler did not. It is called as a user calls it,
in this process, on the same API server.
"""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from scheduler.cli import why

Json = dict[str, Any]
MOST = 3
"""Pods of a story that are asked about, one for each reason."""


def disagreements(kubeconfig: Path, config: Path, namespace: str, pods: dict[str, str]) -> list[str]:
    """Return where the command and the scheduler differ. pods: name -> what its PodScheduled condition says."""
    asked: dict[str, str] = {}
    for name, said in sorted(pods.items()):
        if said.startswith("False "):
            asked.setdefault(said, name)
    return [
        line for said, name in list(asked.items())[:MOST] for line in _one(kubeconfig, config, namespace, name, said)
    ]


def _one(kubeconfig: Path, config: Path, namespace: str, name: str, said: str) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = why.explain(
            f"pod/{name}", kubeconfig=str(kubeconfig), context=None, namespace=namespace, output="json", config=config
        )
    if code:
        return [f"muster why pod/{name} ended with {code}: {out.getvalue()}"]
    facts = json.loads(out.getvalue())[0]
    now = str(facts.get("now") or "")
    blocker = now.partition(":")[0]
    if ":" in now and (f"{blocker}:" in said or said.startswith(f"False {blocker} ")):
        return []
    if "never fits" in said and blocker == "WaitingForQuota":
        return []  # both hold; which is told depends on whether its queue was full when it was looked at first
    return [f"{name} waits with {said[6:]!r}, and muster why finds {now or 'nothing'!r}"]
