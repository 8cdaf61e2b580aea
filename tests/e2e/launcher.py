"""`muster run` with accidents: the io process as it is, with a client and an observer that do what a plan says.

    python -m tests.e2e.launcher PLAN --kubeconfig F --config F

Decided here: what can go wrong, where, and what is noted down. Every request that may change something is written to a
journal before it is sent, so that a test can tell what a process wrote and when. The product is not changed: it runs as
its own class with another client type and its own hook.

A plan is JSON: journal (a path), accident ({point, nth, kind}), calls ({point, requests}; RUNNING waits for a pod,
SETTLE until watches are served what was changed, HANG stops a process), binds ({pod: fault}; "namespaces" is the
creation of the scheduler's own), only (the components that it runs; none: all), late ({resource: seconds by which all
that its watch tells comes late}). A point is one of the binder's, or request-unsent, request-sent, bind-unsent (in the
client); kind is kill-io, kill-brain, kill-both or freeze; a fault is {status | drop: before, unsure or after, times,
wait}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop

from scheduler.app import RunOptions, load_configuration, with_options
from scheduler.cluster.client import ApiClient, ApiError, OutcomeUnknown, Unreachable
from scheduler.io_process import IoProcess
from scheduler.model.bindrequest import BindRequest
from scheduler.observe import logs
from tests.controlplane import rest as plain

Json = dict[str, Any]
FOR_EVER = 1_000_000


class Plan:
    """What shall happen in this process; each accident once."""

    def __init__(self, raw: Json) -> None:
        self._journal = Path(raw["journal"]).open("a", buffering=1)  # noqa: SIM115 - until the process dies
        self.count = 0
        self._accident: Json | None = raw.get("accident")
        self._calls: Json | None = raw.get("calls")
        self._binds: dict[str, Json] = raw.get("binds", {})
        self._seen: dict[str, int] = {}
        self.late: dict[str, float] = raw.get("late", {})
        self.kubeconfig = raw["kubeconfig"]
        self.brain = 0

    def note(self, what: str, **facts: Any) -> None:
        """Write a line of the journal."""
        line = {"what": what, "pid": os.getpid(), "at": time.time(), **facts}
        self._journal.write(json.dumps(line) + "\n")

    def reached(self, point: str) -> None:
        """Do what is planned for this point."""
        self._seen[point] = self._seen.get(point, 0) + 1
        self.note("point", point=point)
        if self._calls is not None and self._calls["point"] == point:
            calls, self._calls = self._calls["requests"], None
            self._call(calls)
        accident = self._accident
        if accident is not None and accident["point"] == point and self._seen[point] == accident.get("nth", 1):
            self._accident = None
            self._happen(accident["kind"])

    def _call(self, calls: list[Json]) -> None:
        """Change the cluster, with this process standing still: nothing of it can have been seen."""
        config = json.loads(Path(self.kubeconfig).read_text())
        cluster = config["clusters"][0]["cluster"]
        authority = Path(self.kubeconfig).parent / "certs" / "apiserver.crt"
        api = plain.Rest(cluster["server"], config["users"][0]["user"]["token"], str(authority))
        for call in calls:
            if call["method"] == "DELETE":
                api.delete(call["path"], grace=0)
            elif call["method"] == "POST":
                api.create(call["path"], call["body"])
            elif call["method"] == "RUNNING":
                _wait_running(api, call["path"])
            elif call["method"] == "HANG":
                os.killpg(call["pid"], signal.SIGSTOP)
            elif call["method"] == "SETTLE":
                _wait_served(api, call["path"], call["shows"])
                time.sleep(0.5)  # what the server has begun to send waits in our sockets by now
            else:
                api.patch(call["path"], call["body"], kind=call.get("kind", "merge"))
            self.note("called", method=call["method"], path=call.get("path", ""))

    def _happen(self, kind: str) -> None:
        self.note("accident", kind=kind, brain=self.brain)
        if kind == "freeze":
            os.kill(self.brain, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self.note("woke")
            return
        if kind in ("kill-brain", "kill-both"):
            os.kill(self.brain, signal.SIGKILL)
        if kind in ("kill-io", "kill-both"):
            os.kill(os.getpid(), signal.SIGKILL)

    def fault_of(self, name: str) -> Json | None:
        """Return what shall go wrong with the bind of this pod, and count it."""
        fault = self._binds.get(name)
        if fault is None or fault.get("times", 1) <= 0:
            return None
        fault["times"] = fault.get("times", 1) - 1
        return fault


def _wait_running(api: plain.Rest, path: str) -> None:
    """Wait until a kubelet has taken a pod."""
    deadline = time.monotonic() + 90
    while api.get(path)["status"].get("phase") != "Running":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} does not run")
        time.sleep(0.05)


def _wait_served(api: plain.Rest, path: str, shows: str) -> None:
    """Wait until what watches are served from has an object with this text, or (no text) has it no longer."""
    deadline = time.monotonic() + 90
    while True:
        try:
            text = json.dumps(api.get(path, resourceVersion="0"))
        except plain.ApiError as error:
            if error.status != 404:
                raise
            text = ""
        if shows in text if shows else not text:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{path} is not served with {shows!r}: {text}")
        time.sleep(0.02)


class Client(ApiClient):
    """The product's client, which notes what it sends and fails as planned."""

    plan: Plan

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        """Send, unless the plan says otherwise."""
        if method == "GET":
            return await super().request(method, path, **options)
        plan, is_request = self.plan, method == "POST" and path.endswith("/bindrequests")
        fault = None
        if is_request:
            plan.reached("request-unsent")
        elif method == "POST" and path.endswith("/binding"):
            plan.reached("bind-unsent")
            fault = plan.fault_of(path.split("/")[-2])
        elif method == "POST" and path.endswith("/namespaces"):
            fault = plan.fault_of("namespaces")
        if fault is not None:
            plan.note("fault", path=path, fault=fault)
            await asyncio.sleep(fault.get("wait", 0.0))
            _fail_before(fault)
        answer = await super().request(method, path, **options)
        if fault is not None:
            raise OutcomeUnknown("the answer was dropped by the test")
        if is_request:
            plan.reached("request-sent")
        return answer

    async def stream_batches(self, path: str, *arguments: Any, **options: Any) -> AsyncIterator[list[bytes]]:
        """Yield what the product's client does, later where that is planned."""
        late = self.plan.late.get(path.rsplit("/", 1)[-1], 0.0)
        came: asyncio.Queue[tuple[float, list[bytes] | BaseException | None]] = asyncio.Queue()

        async def read() -> None:
            end: BaseException | None = None
            try:
                async for lines in ApiClient.stream_batches(self, path, *arguments, **options):
                    came.put_nowait((time.monotonic() + (late if lines else 0.0), lines))
            except Exception as error:  # noqa: BLE001 - raised to who reads the stream
                end = error
            came.put_nowait((0.0, end))

        reader = asyncio.create_task(read())
        try:
            while True:
                at, lines = await came.get()
                if isinstance(lines, BaseException):
                    raise lines
                if lines is None:
                    return
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                yield lines
        finally:
            reader.cancel()

    async def _once(self, method: str, path: str, *arguments: Any) -> bytes:
        if method == "GET":
            return await super()._once(method, path, *arguments)
        self.plan.count += 1
        number = self.plan.count
        self.plan.note("write", method=method, path=path, number=number)
        try:
            answer = await super()._once(method, path, *arguments)
        except Unreachable:
            self.plan.note("unsent", number=number)
            raise
        self.plan.note("done", method=method, path=path)
        return answer


def _fail_before(fault: Json) -> None:
    if "status" in fault:
        status, reason = fault["status"], fault.get("reason", "")
        raise ApiError(status, reason, "planned by the test", retry_after=fault.get("retryAfter"))
    if fault["drop"] == "before":
        raise Unreachable("dropped by the test before it was sent")
    if fault["drop"] == "unsure":
        raise OutcomeUnknown("dropped by the test, and nobody knows")


class Process(IoProcess):
    """The io process with a plan."""

    client_type = Client
    plan: Plan

    def _reached(self, point: str, request: BindRequest) -> None:
        self.plan.reached(point)

    def _start_brain(self) -> Any:
        link = super()._start_brain()
        self.plan.brain = self._brain.pid if self._brain is not None else 0
        self.plan.note("started", brain=self.plan.brain)
        return link


def main() -> int:
    """Run until the end that the plan has in mind."""
    parser = argparse.ArgumentParser()
    parser.add_argument("plan", type=Path)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--config", type=Path, required=True)
    arguments = parser.parse_args()
    raw = json.loads(arguments.plan.read_text())
    only = tuple(raw.get("only", ()))
    options = RunOptions(kubeconfig=arguments.kubeconfig, config=arguments.config, only=only)
    config = with_options(load_configuration(options.config), options)
    logs.configure(config.log_format)
    Client.plan = Process.plan = Plan({**raw, "kubeconfig": arguments.kubeconfig})
    Process.patience = raw.get("patience", Process.patience)
    return uvloop.run(Process(config, options, None).run())


if __name__ == "__main__":
    sys.exit(main())
