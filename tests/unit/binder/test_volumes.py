"""How the claims of a gang are bound before its pods, and what is taken back: against claims and volumes in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from scheduler.binder import volumes as binding
from scheduler.binder.record import Failure
from scheduler.binder.volumes import Settings, VolumeBinding
from scheduler.cluster import feed
from scheduler.cluster.client import ApiError, RequestFailed, Unreachable
from scheduler.dialects.storage import decode_claim, decode_volume
from scheduler.model.decisions import Assignment, Place
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod
from scheduler.model.podvolumes import PodClaim, PodVolumes, VolumeStep
from scheduler.model.volumes import Claim, Volume

Json = dict[str, Any]
NEVER = 1e12


class Storehouse:
    """An API server and a cache that shows at once what it holds, unless it is `lagging`."""

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.shown: dict[str, Json] = {}
        self.pods: dict[str, Pod] = {}
        self.lagging = False
        self.writes: list[tuple[str, Json]] = []
        self.faults: list[RequestFailed] = []
        self.may_write = True
        self._version = 0
        self._subscribers: list[Callable[[list[feed.Event]], None]] = []

    # -- what there is --------------------------------------------------------------------------------------------

    def put(self, path: str, body: Json) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = body
        if not self.lagging:
            self.show(path)

    def show(self, path: str) -> None:
        body = self.shown[path] = msgspec.json.decode(msgspec.json.encode(self.objects[path]))
        raw = msgspec.json.encode(body)
        event = feed.ClaimSet(decode_claim(raw)) if "claims" in path else feed.VolumeSet(decode_volume(raw))
        for subscriber in self._subscribers:
            subscriber([event])

    def claim_json(self, name: str, **metadata: Any) -> str:
        path = f"/api/v1/namespaces/a/persistentvolumeclaims/{name}"
        meta = {"name": name, "namespace": "a", "uid": f"c-{name}", **metadata}
        self.put(path, {"metadata": meta, "spec": {"storageClassName": "s"}})
        return path

    def volume_json(self, name: str, node: str = "", **spec: Any) -> str:
        path = f"/api/v1/persistentvolumes/{name}"
        if node:
            need = {"key": "host", "operator": "In", "values": [node]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [need]}]}}
        self.put(path, {"metadata": {"name": name, "uid": f"v-{name}"}, "spec": spec, "status": {"phase": "Available"}})
        return path

    def change(self, path: str, patch: Json) -> None:
        self.put(path, _merged(self.objects[path], patch))

    def bind(self, claim: str, volume: str) -> None:
        path = f"/api/v1/namespaces/a/persistentvolumeclaims/{claim}"
        self.change(
            path,
            {
                "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": volume},
            },
        )

    def notes(self, claim: str) -> Json:
        found = self.objects[f"/api/v1/namespaces/a/persistentvolumeclaims/{claim}"]["metadata"]
        return dict(found.get("annotations") or {})

    def reference(self, volume: str) -> Json | None:
        found: Json | None = self.objects[f"/api/v1/persistentvolumes/{volume}"]["spec"].get("claimRef")
        return found

    # -- the ports ------------------------------------------------------------------------------------------------

    def pod(self, uid: str) -> Pod | None:
        return self.pods.get(uid)

    def node(self, name: str) -> Node | None:
        return Node(name, labels=(("host", name),)) if name.startswith("n") else None

    def claim(self, key: str) -> Claim | None:
        body = self.shown.get("/api/v1/namespaces/{}/persistentvolumeclaims/{}".format(*key.split("/")))
        return decode_claim(msgspec.json.encode(body)) if body else None

    def volume(self, name: str) -> Volume | None:
        body = self.shown.get(f"/api/v1/persistentvolumes/{name}")
        return decode_volume(msgspec.json.encode(body)) if body else None

    def subscribe(self, callback: Callable[[list[feed.Event]], None], *, replay: bool = True) -> Callable[[], None]:
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    def tell(self, event: feed.Event) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber([event])

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        timeout: float = 15.0,
    ) -> bytes:
        await asyncio.sleep(0)
        if self.faults:
            raise self.faults.pop(0)
        found = self.objects.get(path)
        if found is None:
            raise ApiError(404, "NotFound")
        if method == "PATCH":
            patch = msgspec.json.decode(body) if isinstance(body, bytes) else dict(body or {})
            meta = patch["metadata"]
            if (meta["uid"], meta["resourceVersion"]) != (
                found["metadata"]["uid"],
                found["metadata"]["resourceVersion"],
            ):
                raise ApiError(409, "Conflict")
            self.writes.append((path.rsplit("/", 1)[1], patch))
            self.change(path, patch)
        return msgspec.json.encode(self.objects[path])


def _merged(base: Json, patch: Json) -> Json:
    result = dict(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(result.get(key) or {}, value)
        else:
            result[key] = value
    return result


def gang(house: Storehouse, *steps: tuple[str, str, str], minimum: int | None = None, kept: bool = False) -> Place:
    """A gang with a member for each (claim, node, volume); volume "" where one is made."""
    assignments, made = [], []
    for number, (claim, node, volume) in enumerate(steps):
        uid = f"u{number}"
        house.pods[uid] = Pod(uid, "a", f"p{number}", "s", volumes=PodVolumes((PodClaim(claim),)))
        assignments.append(Assignment(uid, "a", f"p{number}", node))
        made.append(VolumeStep(uid, "a", claim, f"c-{claim}", volume, kept))
    size = len(steps) if minimum is None else minimum
    return Place("muster/a/g", "g", "a", "g", "v1", "PodGroup", size, tuple(assignments), tuple(made))


class Bench:
    """The step at work on a house."""

    def __init__(self, house: Storehouse, *, seconds: float = 600.0) -> None:
        self.house, self.withdrawn = house, False
        self.steps = VolumeBinding(house, house, lambda: house.may_write, settings=Settings(time=seconds))

    def prepare(self, place: Place) -> asyncio.Task[tuple[Failure, ...]]:
        members = tuple(range(len(place.assignments)))
        work = self.steps.prepare(place, members, until=lambda: NEVER, withdrawn=lambda: self.withdrawn)
        return asyncio.ensure_future(work)

    async def undo(self, place: Place) -> None:
        await self.steps.undo(place, tuple(range(len(place.assignments))))


def run(story: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await story

    asyncio.run(limited())


async def soon(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_all_claims_are_told_their_nodes_and_the_gang_waits_for_the_last() -> None:
    async def story() -> None:
        house = Storehouse()
        for name in ("x", "y"):
            house.claim_json(name)
        bench, place = Bench(house), gang(house, ("x", "n1", ""), ("y", "n2", ""))
        task = bench.prepare(place)
        await soon(lambda: len(house.writes) == 2)
        assert [house.notes(name)[binding.SELECTED_NODE] for name in ("x", "y")] == ["n1", "n2"]
        house.volume_json("v1", "n1")
        house.bind("x", "v1")
        await asyncio.sleep(0.01)
        assert not task.done()
        house.volume_json("v2", "n2")
        house.bind("y", "v2")
        assert await task == ()

    run(story())


def test_a_claim_whose_node_is_taken_off_fails_the_gang_and_the_rest_is_taken_back() -> None:
    async def story() -> None:
        house = Storehouse()
        x, y = house.claim_json("x"), house.claim_json("y")
        bench, place = Bench(house), gang(house, ("x", "n1", ""), ("y", "n2", ""))
        task = bench.prepare(place)
        await soon(lambda: len(house.writes) == 2)
        house.change(y, {"metadata": {"annotations": {binding.SELECTED_NODE: None}}})
        assert await task == (Failure(1, binding.PROVISIONING, about="claim a/y"),)
        await bench.undo(place)
        assert binding.SELECTED_NODE not in house.notes("x")
        assert house.objects[x]["spec"] == {"storageClassName": "s"}

    run(story())


def test_members_above_the_minimum_may_fail_alone() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        y = house.claim_json("y")
        bench, place = Bench(house), gang(house, ("x", "n1", ""), ("y", "n2", ""), minimum=1)
        task = bench.prepare(place)
        await soon(lambda: len(house.writes) == 2)
        house.change(y, {"metadata": {"annotations": {binding.SELECTED_NODE: "n9"}}})
        await asyncio.sleep(0.01)
        assert not task.done()
        house.volume_json("v", "n1")
        house.bind("x", "v")
        assert [failure.member for failure in await task] == [1]

    run(story())


def test_an_own_write_that_the_watch_does_not_show_yet_is_not_a_failure() -> None:
    async def story() -> None:
        house = Storehouse()
        x = house.claim_json("x")
        house.lagging = True
        task = Bench(house).prepare(gang(house, ("x", "n1", "")))
        await soon(lambda: house.writes)
        house.tell(feed.ClaimSet(house.claim("a/x")))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert not task.done()
        house.lagging = False
        house.show(x)
        house.volume_json("v")
        house.bind("x", "v")
        assert await task == ()

    run(story())


def test_a_volume_is_given_to_its_claim_on_the_version_that_was_read() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        path = house.volume_json("v", "n1")
        house.lagging = True
        house.change(path, {"metadata": {"labels": {"news": "yes"}}})  # the cache is one version behind
        house.lagging = False
        task = Bench(house).prepare(gang(house, ("x", "n1", "v")))
        await soon(lambda: house.writes)
        assert house.reference("v") == {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "a", "name": "x", "uid": "c-x",
        }  # fmt: skip
        assert house.writes[0][1]["metadata"]["annotations"] == {binding.BOUND_BY: "yes"}
        house.bind("x", "v")
        assert await task == ()

    run(story())


def test_a_volume_that_somebody_else_took_is_not_touched() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        other = {"namespace": "a", "name": "z", "uid": "c-z"}
        house.volume_json("v", "n1", claimRef=other)
        bench, place = Bench(house), gang(house, ("x", "n1", "v"))
        (failure,) = await bench.prepare(place)
        assert failure.cause == binding.VOLUME_TAKEN
        await bench.undo(place)
        assert (house.reference("v"), house.writes) == (other, [])

    run(story())


def test_a_volume_that_is_reset_fails_the_gang() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        path = house.volume_json("v", "n1")
        task = Bench(house).prepare(gang(house, ("x", "n1", "v")))
        await soon(lambda: house.writes)
        house.change(path, {"spec": {"claimRef": None}})
        assert [failure.cause for failure in await task] == [binding.VOLUME_TAKEN]

    run(story())


def test_taking_back_leaves_what_is_bound() -> None:
    async def story() -> None:
        house = Storehouse()
        for name in ("x", "y", "z"):
            house.claim_json(name)
        house.volume_json("v", "n1")
        house.volume_json("w", "n1")
        bench, place = Bench(house), gang(house, ("x", "n1", "v"), ("y", "n1", "w"), ("z", "n1", ""))
        task = bench.prepare(place)
        await soon(lambda: len(house.writes) == 3)
        house.bind("x", "v")
        house.tell(feed.PodGone("u2"))
        del house.pods["u2"]
        house.tell(feed.PodGone("u2"))
        assert [(failure.cause, failure.permanent) for failure in await task] == [("PodGone", True)]
        await bench.undo(place)
        assert (house.reference("v") or {})["name"] == "x"
        assert house.reference("w") is None
        assert binding.SELECTED_NODE not in house.notes("z")

    run(story())


def test_what_was_so_before_is_waited_for_and_not_taken_back() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x", annotations={binding.SELECTED_NODE: "n1"})
        bench, place = Bench(house), gang(house, ("x", "n1", ""), kept=True)
        task = bench.prepare(place)
        await asyncio.sleep(0.01)
        bench.withdrawn = True
        house.tell(feed.RequestGone("r"))
        assert await task == ()
        await bench.undo(place)
        assert house.writes == []
        assert house.notes("x") == {binding.SELECTED_NODE: "n1"}

    run(story())


def test_doing_it_again_changes_nothing() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x", annotations={binding.SELECTED_NODE: "n1"})
        house.claim_json("y")
        house.volume_json("v", "n1", claimRef={"namespace": "a", "name": "y", "uid": "c-y"})
        task = Bench(house).prepare(gang(house, ("x", "n1", ""), ("y", "n1", "v")))
        await asyncio.sleep(0.01)
        assert house.writes == []
        house.volume_json("w", "n1")
        house.bind("x", "w")
        house.bind("y", "v")
        assert await task == ()

    run(story())


def test_a_volume_that_the_node_does_not_reach_fails_its_member() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        task = Bench(house).prepare(gang(house, ("x", "n1", "")))
        await soon(lambda: house.writes)
        house.volume_json("v", "n2")
        house.bind("x", "v")
        assert [failure.cause for failure in await task] == [binding.UNREACHED]

    run(story())


def test_it_ends_when_the_time_is_over() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        (failure,) = await Bench(house, seconds=0.05).prepare(gang(house, ("x", "n1", "")))
        assert (failure.cause, failure.about) == (binding.TIMEOUT, "claim a/x")

    run(story())


def test_an_api_server_that_is_away_is_asked_again_and_one_that_refuses_is_not() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x")
        house.faults = [Unreachable("away"), ApiError(503, "ServiceUnavailable")]
        task = Bench(house).prepare(gang(house, ("x", "n1", "")))
        await soon(lambda: house.writes)
        house.volume_json("v")
        house.bind("x", "v")
        assert await task == ()
        house.claim_json("y")
        house.faults = [ApiError(403, "Forbidden")]
        (failure,) = await Bench(house).prepare(gang(house, ("y", "n1", "")))
        assert failure.cause == binding.REFUSED

    run(story())


def test_a_claim_that_is_gone_or_another_one_of_its_name_is_not_written() -> None:
    async def story() -> None:
        house = Storehouse()
        house.claim_json("x", uid="somebody else's")
        causes = [
            failure.cause for failure in await Bench(house).prepare(gang(house, ("x", "n1", ""), ("y", "n1", "")))
        ]
        assert set(causes) == {binding.CLAIM_GONE}
        assert house.writes == []

    run(story())
