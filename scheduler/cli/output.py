"""How the commands print: tables for people, JSON and YAML for programs; errors on stderr with their exit code."""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from scheduler.cluster.auth import AuthError
from scheduler.cluster.client import ApiClient, ApiError, RequestFailed

OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE = 0, 1, 2, 3, 4


def complain(message: str) -> None:
    """Print to stderr."""
    print(f"error: {message}", file=sys.stderr)


def hint(name: str, known: Iterable[str]) -> str:
    """Return a question after the nearest name that exists, "" where none is near."""
    close = difflib.get_close_matches(name, sorted(set(known)), n=1, cutoff=0.7)
    return f'; did you mean "{close[0]}"?' if close else ""


def note(message: str) -> None:
    """Print a remark to stderr; stdout holds objects only."""
    print(message, file=sys.stderr)


def with_client(kubeconfig: str | None, context: str | None, call: Callable[[ApiClient], Awaitable[int]]) -> int:
    """Run `call` with a client and turn what goes wrong into a message and an exit code."""

    async def work() -> int:
        async with ApiClient.connect(kubeconfig, context, user_agent="muster-cli", log_refusals=False) as client:
            return await call(client)

    try:
        return asyncio.run(work())
    except AuthError as error:
        complain(str(error))
        return USAGE
    except ApiError as error:
        complain(str(error))
        if way := _way_round(error):
            note(way)
        return NOT_FOUND if error.status == 404 else FAILED
    except RequestFailed as error:
        complain(str(error))
        return UNREACHABLE


_CLUSTER_WIDE = re.compile(r'cannot (get|list|watch) resource "([^"]+)" in API group "([^"]*)" at the cluster scope')
_GROUPS = re.compile(r'cannot list resource "podgroups" in API group "([^"]+)" in the namespace "([^"]+)"')


def _way_round(error: ApiError) -> str:
    """Return what somebody may do who may not read all of the cluster, or not every API's groups; "" where neither."""
    if error.status != HTTPStatus.FORBIDDEN:
        return ""
    if hidden := _GROUPS.search(error.message):
        return (
            f"a gang may be of any API: this needs the right to list podgroups.{hidden[1]} in the namespace "
            f"{hidden[2]}, which the chart's ClusterRole muster-pod-group-viewer adds to view"
        )
    refused = _CLUSTER_WIDE.search(error.message)
    if refused is None:
        return ""
    verb, resource, group = refused.groups()
    right = f"{verb} {resource}.{group}" if group else f"{verb} {resource}"
    return (
        f"this looks at the whole cluster and needs the right to {right} in all of it: the ClusterRoles view and "
        "muster-queue-viewer have it; with rights in one namespace: muster get groups -n NAMESPACE, "
        "muster why NAME -n NAMESPACE"
    )


def emit(rows: Sequence[dict[str, Any]], columns: Sequence[str], output: str, name_key: str = "name") -> None:
    """Print rows as a table of `columns` (or all keys when wide), or as data."""
    if output == "json":
        print(json.dumps(list(rows), indent=2))
    elif output == "yaml":
        print(yaml.safe_dump(list(rows), sort_keys=False, allow_unicode=True), end="")
    elif output == "name":
        for row in rows:
            print("/".join(str(row[key]) for key in ("namespace", name_key) if row.get(key)))
    else:
        table(rows, list(rows[0]) if output == "wide" and rows else columns)


def tell(told: Sequence[dict[str, Any]], output: str, show: Callable[[dict[str, Any]], None]) -> None:
    """Print what is told of several things: as data, or with `show`, a blank line between them."""
    if output in ("json", "yaml"):
        emit(told, (), output)
        return
    for number, facts in enumerate(told):
        print(end="\n" if number else "")
        show(facts)


def listing(lines: Sequence[tuple[str, object]]) -> None:
    """Print keys and values in two columns; what is not there is "-"."""
    width = max(len(key) for key, _ in lines)
    for key, value in lines:
        print(f"{key.ljust(width)}  {_cell(value)}")


def named(names: Sequence[str], most: int) -> str:
    """Return the first `most` names and how many more there are; "" for none."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Print rows as a table of `columns`: wrapped on a terminal, one row a line elsewhere."""
    if not rows:
        return
    texts = [[_cell(row.get(column)) for column in columns] for row in rows]
    if not sys.stdout.isatty():
        lines = [[column.upper() for column in columns], *texts]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            print("   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
        return
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column.upper(), overflow="fold")
    for line in texts:
        drawn.add_row(*line)
    Console().print(drawn)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, dict):
        return ",".join(f"{key}={item}" for key, item in value.items())
    return str(value)


def timestamp(created: float) -> str:
    """Return seconds since the epoch as Kubernetes writes times; "" for 0."""
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if created else ""


def age(created: float) -> str:
    """Return the time since `created` (seconds since the epoch) as people write it: 45s, 12m, 3h, 2d."""
    seconds = max(0, int(datetime.now(UTC).timestamp() - created))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
