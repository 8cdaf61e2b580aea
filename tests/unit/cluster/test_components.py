"""Components that run apart, and the leases by which each knows of the other."""

from __future__ import annotations

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from scheduler.cluster import components
from scheduler.cluster.client import ApiError, Unreachable
from scheduler.cluster.components import (
    BinderLease,
    SchedulerLease,
    WholeLeads,
    identity,
    lease_name,
    until_no_binder,
)
from scheduler.model.components import WHOLE, Component

SCHEDULER, BINDER, CONTROLLERS = ({one} for one in Component)


class Leases:
    """The API server: leases by name, or what is raised for one."""

    def __init__(self) -> None:
        self.held: dict[str, tuple[str, int] | Exception] = {}
        self.version = 0

    def hold(self, name: str, holder: str, epoch: int = 1) -> None:
        self.version += 1
        self.held[name] = (holder, epoch)

    async def request(self, method: str, path: str, *, timeout: float = 15.0) -> bytes:
        assert method == "GET"
        found = self.held.get(path.rpartition("/")[2], ApiError(404, "NotFound"))
        if isinstance(found, Exception):
            raise found
        spec = {"holderIdentity": found[0], "leaseTransitions": found[1], "leaseDurationSeconds": 15}
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "spec": spec}).encode()


def test_each_component_leads_by_a_lease_of_its_own_and_the_scheduler_says_whether_it_binds() -> None:
    named = [lease_name("m", one) for one in (WHOLE, SCHEDULER, BINDER, CONTROLLERS, BINDER | CONTROLLERS)]
    assert named == ["m", "m", "m-binder", "m-controllers", "m-binder"]
    alone = [identity(one).endswith("_scheduler-only") for one in (WHOLE, SCHEDULER, SCHEDULER | BINDER, BINDER)]
    assert alone == [False, True, False, False]
    assert identity(WHOLE) != identity(WHOLE)


async def test_a_binder_takes_its_epoch_from_a_scheduler_that_runs_alone_and_ends_where_another_one_leads() -> None:
    api = Leases()
    lease = SchedulerLease(api, "ns", "muster")
    assert await lease.ask() == 0
    api.hold("muster", identity(SCHEDULER), 7)
    assert await lease.ask() == 7
    api.hold("muster", "", 7)
    assert await lease.ask() == 7, "given back: what was asked is still to be done"
    api.hold("muster", identity(WHOLE), 8)
    with pytest.raises(WholeLeads, match="ns/muster is held by"):
        await lease.ask()


async def test_a_binder_does_not_begin_while_a_process_that_binds_itself_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(components, "_LOOK", 0.01)
    api = Leases()
    api.hold("muster", identity(WHOLE))
    lease = SchedulerLease(api, "ns", "muster")
    with capture_logs() as logs:
        waiting = asyncio.create_task(lease.until_ours())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        api.held["muster"] = Unreachable("refused")
        await asyncio.sleep(0.05)
        assert not waiting.done()
        api.hold("muster", identity(SCHEDULER))
        await asyncio.wait_for(waiting, 5)
    assert [entry["event"] for entry in logs] == ["not_binding_yet"], "once, not at every look"
    watching = asyncio.create_task(lease.watch())
    await asyncio.sleep(0.05)
    assert not watching.done()
    api.hold("muster", identity(WHOLE))
    with pytest.raises(WholeLeads):
        await asyncio.wait_for(watching, 5)


async def test_who_binds_itself_waits_for_a_binder_until_it_gives_its_lease_back_or_lets_it_run_out() -> None:
    api, now = Leases(), [0.0]
    api.hold("muster-binder", "somebody")

    def lease() -> BinderLease:
        return BinderLease(api, "ns", "muster", clock=lambda: now[0])

    await until_no_binder(BinderLease(Leases(), "ns", "muster"))  # there has never been one
    waiting = asyncio.create_task(until_no_binder(lease(), pause=0.01))
    await asyncio.sleep(0.05)
    now[0] += 14.0
    api.hold("muster-binder", "somebody")  # renewed
    await asyncio.sleep(0.05)
    now[0] += 14.0
    await asyncio.sleep(0.05)
    assert not waiting.done()
    now[0] += 2.0
    await asyncio.wait_for(waiting, 5)
    again = asyncio.create_task(until_no_binder(lease(), pause=0.01))
    await asyncio.sleep(0.05)
    assert not again.done(), "how old the lease is cannot be told by its own clock"
    api.hold("muster-binder", "")
    await asyncio.wait_for(again, 5)


async def test_who_may_not_see_the_binders_lease_says_so_and_goes_on_and_an_outage_is_waited_out() -> None:
    api = Leases()
    api.held["muster-binder"] = ApiError(403, "Forbidden", "may not get leases")
    with capture_logs() as logs:
        await asyncio.wait_for(until_no_binder(BinderLease(api, "ns", "muster")), 5)
    assert [entry["event"] for entry in logs] == ["binder_lease_unread"]
    api.held["muster-binder"] = ApiError(500, "InternalError", "fault")
    waiting = asyncio.create_task(until_no_binder(BinderLease(api, "ns", "muster"), pause=0.01))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    del api.held["muster-binder"]
    await asyncio.wait_for(waiting, 5)


async def test_requests_that_nobody_is_there_to_bind_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(components, "_SAY", 0.01)
    api, late = Leases(), [0]
    with capture_logs() as logs:
        watching = asyncio.create_task(BinderLease(api, "ns", "muster").watch(lambda: late[0]))
        await asyncio.sleep(0.05)
        assert logs == []
        api.hold("muster-binder", "somebody")
        late[0] = 3
        await asyncio.sleep(0.05)
        assert logs == [], "it is there, and has its reasons"
        del api.held["muster-binder"]
        await asyncio.sleep(0.05)
        watching.cancel()
    assert logs[0]["event"] == "no_binder"
    assert "3 bind requests" in logs[0]["problem"]
