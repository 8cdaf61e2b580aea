"""Disruption budgets as the cache has them while their controller counts, on both servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from scheduler.cluster.cache import Cache
from scheduler.cluster.client import ApiClient
from scheduler.cluster.watches import Watches
from scheduler.model.affinity import LabelSelector, Requirement
from scheduler.model.budgets import DisruptionBudget
from tests.contract.conftest import Server


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.05)


async def test_what_a_budget_allows_is_followed(server: Server) -> None:
    def begin() -> None:
        for name in ("a", "b"):
            server.pod(name, labels={"app": "x"}, nodeName="ghost")
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            server.rest.patch(server.path("pods", name, "status"), {"status": ready}, kind="strategic")
        for name, selector in (("some", {"matchLabels": {"app": "x"}}), ("all", {}), ("none", None)):
            spec = {"minAvailable": 1} | ({} if selector is None else {"selector": selector})
            server.rest.create(budgets, {"metadata": {"name": name}, "spec": spec})

    budgets, cache = server.path("poddisruptionbudgets", api="/apis/policy/v1"), Cache()

    def budget(name: str) -> DisruptionBudget | None:
        return cache.budgets.by_key.get(f"{server.namespace}/{name}")

    def allows(name: str, number: int) -> bool:
        found = budget(name)
        return found is not None and found.allowed == number

    await asyncio.to_thread(begin)
    async with ApiClient.connect(str(server.kubeconfig)) as client:
        watches = Watches(client, cache, (), scheduler_names=("nobody",), namespace=server.namespace, freeze=False)
        running = asyncio.create_task(watches.run())
        try:
            await until(lambda: allows("some", 1) and allows("all", 1) and allows("none", 0))
            some, everything, none = budget("some"), budget("all"), budget("none")
            assert some is not None and some.selector == LabelSelector((Requirement("app", "In", ("x",)),))
            assert everything is not None and everything.selector == LabelSelector()
            assert none is not None and none.selector is None
            await asyncio.to_thread(server.rest.patch, f"{budgets}/some", {"spec": {"minAvailable": 2}})
            await until(lambda: allows("some", 0))
            await asyncio.to_thread(server.rest.delete, f"{budgets}/some")
            await until(lambda: budget("some") is None)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
