"""What somebody is told who may not read all of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scheduler.cli import output
from scheduler.cluster.client import ApiError

SAID = '{0} is forbidden: User "ana" cannot list resource "{0}" in API group "{1}" {2}'


def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: ApiError) -> str:
    @asynccontextmanager
    async def connect(*_: Any, log_refusals: bool, **__: Any) -> AsyncIterator[None]:
        assert not log_refusals, "a log line on stdout would stand before the objects"
        yield None

    async def refused(_: Any) -> int:
        raise error

    monkeypatch.setattr(output.ApiClient, "connect", connect)
    assert output.with_client(None, None, refused) == output.FAILED
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("resource", "group", "right"),
    [("nodes", "", "list nodes in"), ("queues", "scheduling.muster.sh", "list queues.scheduling.muster.sh in")],
)
def test_a_right_to_the_whole_cluster_is_named_with_the_way_round(
    resource: str, group: str, right: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = SAID.format(resource, group, "at the cluster scope")
    said = told(monkeypatch, capsys, ApiError(403, "Forbidden", message))
    assert f"needs the right to {right} all of it" in said
    assert "view and muster-queue-viewer" in said
    assert "muster get groups -n NAMESPACE" in said


def test_groups_that_are_hidden_in_a_namespace_are_named_with_the_role(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = SAID.format("podgroups", "scheduling.volcano.sh", 'in the namespace "a"')
    said = told(monkeypatch, capsys, ApiError(403, "Forbidden", message))
    assert "right to list podgroups.scheduling.volcano.sh in the namespace a" in said
    assert "muster-pod-group-viewer" in said


def test_another_refusal_has_no_such_way_round(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = SAID.format("pods", "", 'in the namespace "a"')
    assert "whole cluster" not in told(monkeypatch, capsys, ApiError(403, "Forbidden", message))
    assert "whole cluster" not in told(monkeypatch, capsys, ApiError(409, "Conflict", "another one was faster"))
