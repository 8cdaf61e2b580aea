"""`muster completion SHELL`, names for it, and what kubectl asks for after `kubectl muster`.

Decided here: which names are offered where: groups and queues of the cluster that the words so far name. Completion
never says what is wrong: a cluster that cannot be asked, or not within `_PATIENCE` seconds, has no names.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

_PATIENCE = 2.0
_VARIABLE = "_MUSTER_COMPLETE"
_KUBECTL_END = ":4"
"""The directive of kubectl's completions that says: offer no files beside these."""


def script(shell: str) -> None:
    """Print what a shell has to read, and end the process."""
    os.environ[_VARIABLE] = f"source_{shell}"
    from scheduler.cli.main import app

    app(prog_name="muster")


def kubectl() -> None:
    """Answer kubectl, which runs `kubectl_complete-muster WORDS...`: a candidate a line, then a directive."""
    words = ["muster", *sys.argv[1:]]
    os.environ |= {_VARIABLE: "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    from scheduler.cli.main import app

    try:
        app(prog_name="muster")
    finally:
        print(_KUBECTL_END)


def groups(context: Any, incomplete: str) -> list[str]:
    """Return names of groups that begin so, in the namespace of the words so far."""

    async def ask(client: Any, namespace: str) -> list[str]:
        from scheduler.cli import reading

        return [group.name for group in await reading.groups(client, namespace)]

    return _names(context, incomplete, ask)


def queues(context: Any, incomplete: str) -> list[str]:
    """Return names of queues that begin so."""

    async def ask(client: Any, _: str) -> list[str]:
        from scheduler.cli import reading

        return [queue.name for queue in await reading.queues(client)]

    return _names(context, incomplete, ask)


def targets(context: Any, incomplete: str) -> list[str]:
    """Return groups, and behind `queue/` queues."""
    if incomplete.startswith("queue/"):
        return [f"queue/{name}" for name in queues(context, incomplete.removeprefix("queue/"))]
    return groups(context, incomplete)


def _names(context: Any, incomplete: str, ask: Callable[[Any, str], Awaitable[list[str]]]) -> list[str]:
    from scheduler.cluster.auth import AuthError
    from scheduler.cluster.client import ApiClient, RequestFailed

    given = getattr(context, "params", {})

    async def work() -> list[str]:
        async with (
            asyncio.timeout(_PATIENCE),
            ApiClient.connect(
                given.get("kubeconfig"), given.get("context"), user_agent="muster-cli", log_refusals=False
            ) as client,
        ):
            return await ask(client, given.get("namespace") or client.credentials.identity.namespace or "default")

    try:
        found = asyncio.run(work())
    except (AuthError, RequestFailed, TimeoutError, OSError):
        return []
    return sorted({name for name in found if name.startswith(incomplete)})
