"""The wire between the io process and the brain."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading

import pytest
from structlog.testing import capture_logs

from scheduler.cluster import feed, link
from scheduler.model.bindrequest import BindRequest, GangOutcome
from scheduler.model.decisions import Assignment, Explain, Place, SetStatus
from scheduler.model.groups import PodGroup
from scheduler.model.nodes import Node
from scheduler.model.pods import Pod, Shape
from scheduler.model.verdict import Code, verdict

PLACE = Place(
    "volcano/ns/g",
    "u1",
    "ns",
    "g",
    "scheduling.volcano.sh/v1beta1",
    "PodGroup",
    1,
    (Assignment("p1", "ns", "a", "n1"),),
)
HANDOVER = feed.Handover(
    session="s-000001",
    generation=7,
    places=(PLACE,),
    statuses=(SetStatus("volcano/ns/g", "u1", "Inqueue", (("desired", 4),), verdict(Code.GATED, gated=1)),),
    explains=(Explain("volcano/ns/g", verdict(Code.RESOURCES, holders=(("a", 3),), needed=4, part=True), ("p1",)),),
)


def pod(number: int) -> feed.PodSet:
    return feed.PodSet(Pod(uid=f"u{number}", namespace="ns", name=f"p{number}", shape="x", created=1.5))


class Io:
    """An IoLink with its recorded messages."""

    def __init__(self) -> None:
        io_socket, brain_socket = link.socket_pair()
        self.messages: list[feed.FromBrain] = []
        self.ends: list[str] = []
        self.received = asyncio.Event()
        self.ended = asyncio.Event()
        self.io = link.IoLink(io_socket, self._take, self._end)
        self.brain_socket = brain_socket
        self.brain = link.BrainLink(brain_socket)

    def _take(self, messages: list[feed.FromBrain]) -> None:
        self.messages.extend(messages)
        self.received.set()

    def _end(self, cause: str) -> None:
        self.ends.append(cause)
        self.ended.set()


@pytest.fixture(params=["socket", "local"])
async def ends(request: pytest.FixtureRequest):
    messages: list[feed.FromBrain] = []
    causes: list[str] = []
    if request.param == "socket":
        io_socket, brain_socket = link.socket_pair()
        io: link.IoEnd = link.IoLink(io_socket, messages.extend, causes.append)
        brain: link.BrainEnd = link.BrainLink(brain_socket)
    else:
        local = link.LocalLink(messages.extend, causes.append)
        io, brain = local.io, local.brain
    await io.start()
    yield io, brain, messages, causes
    await io.close()
    brain.close()


async def until(condition) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_every_kind_of_value_crosses_unchanged(ends):
    io, brain, messages, _ = ends
    events = [
        feed.NodeSet(Node("n1", allocatable=(("cpu", 4000),), labels=(("a", "b"),))),
        feed.ShapeSet(Shape("x", requests=(("cpu", 1),))),
        pod(1),
        feed.GroupSet(PodGroup("volcano/ns/g", "u1", "volcano", "ns", "g", min_member=4)),
        feed.RequestSet(BindRequest("r", "u", "s-1", 3, 1.5, (PLACE,), "Bound", (GangOutcome(0, "Bound", 1),))),
        feed.HandoverFailed("s-1", ("volcano/ns/g",), "gone"),
        feed.Leading(4),
        feed.Synced(),
        feed.Stop(),
    ]
    for event in events:
        io.send(event)
    received: list[feed.ToBrain] = []
    while len(received) < len(events):
        received += await asyncio.to_thread(brain.receive, 5.0)
    assert received == events
    answer = [HANDOVER, feed.SessionDone("s-1", {"allocate": 0.5}, {"x": 1.0}), feed.SnapshotReply(b"\x00\xff")]
    await asyncio.to_thread(brain.send, answer)
    await until(lambda: len(messages) == 3)
    assert messages == answer


async def test_a_poll_of_a_quiet_link_returns_at_once_with_nothing(ends):
    _, brain, _, _ = ends
    assert brain.receive(0) == []


async def test_order_is_kept_over_many_batches_in_both_directions(ends):
    io, brain, messages, _ = ends
    count = link.BATCH * 2 + 17

    def work() -> list[feed.ToBrain]:
        received: list[feed.ToBrain] = []
        while len(received) < count:
            received += brain.receive(5.0)
        brain.send([feed.SessionDone(f"s-{number}", {}, {}) for number in range(count)])
        return received

    reader = asyncio.ensure_future(asyncio.to_thread(work))
    for number in range(count):
        io.send(pod(number))
    received = await reader
    assert [event.pod.uid for event in received] == [f"u{number}" for number in range(count)]
    await until(lambda: len(messages) == count)
    assert [message.session for message in messages] == [f"s-{number}" for number in range(count)]


async def test_the_brain_reads_what_was_sent_before_the_end_and_then_learns_of_it(ends):
    io, brain, _, causes = ends
    io.send(pod(1))
    await io.close()
    assert await asyncio.to_thread(brain.receive, 5.0) == [pod(1)]
    with pytest.raises(link.LinkClosed):
        await asyncio.to_thread(brain.receive, 5.0)
    with pytest.raises(link.LinkClosed):
        for _ in range(3):
            brain.send([HANDOVER])
    assert causes == []


async def test_the_io_process_is_told_once_that_the_brain_is_gone_after_its_last_words(ends):
    _, brain, messages, causes = ends
    brain.send([HANDOVER])
    brain.close()
    await until(lambda: causes)
    await asyncio.sleep(0.01)
    assert messages == [HANDOVER]
    assert len(causes) == 1


async def test_values_sent_in_one_turn_of_the_loop_travel_in_one_frame():
    both = Io()
    await both.io.start()
    for number in range(5):
        both.io.send(pod(number))
    await asyncio.sleep(0.01)
    raw = both.brain_socket.recv(1 << 20)
    (length,) = struct.unpack_from(">I", raw)
    assert len(raw) == 4 + length
    assert len(feed.to_brain.decode(raw[4:])) == 5
    await both.io.close()


async def test_a_value_that_cannot_be_encoded_is_left_out_and_those_beside_it_arrive():
    end = Io()
    await end.io.start()
    bad = feed.PodSet(Pod(uid="u9", namespace="ns", name="p9", shape="x", priority=10**30))
    with capture_logs() as said:
        for event in (pod(1), bad, pod(2)):
            end.io.send(event)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert await asyncio.to_thread(end.brain.receive, 5.0) == [pod(1), pod(2)]
    assert [(entry["event"], "p9" in entry["message"]) for entry in said] == [("message_not_sent", True)]
    await end.io.close()


async def test_what_a_slow_brain_has_not_read_waits_and_is_not_lost():
    both = Io()
    await both.io.start()
    for number in range(30):
        both.io.send(feed.ShapeSet(Shape(f"{number}" + "x" * 500_000)))
        await asyncio.sleep(0)
    assert both.io.backlog > 0

    def read() -> list[str]:
        taken: list[str] = []
        while len(taken) < 30:
            taken += [event.shape.key.rstrip("x") for event in both.brain.receive(5.0)]
        return taken

    async with asyncio.timeout(10):
        assert await asyncio.to_thread(read) == [str(number) for number in range(30)]
    await both.io.close()


async def test_a_brain_that_takes_nothing_any_more_is_given_up():
    causes: list[str] = []
    io_socket, brain_socket = link.socket_pair()
    over_socket = link.IoLink(io_socket, lambda _: None, causes.append, most_waiting=10)
    local = link.LocalLink(lambda _: None, causes.append, most_waiting=10)
    for io in (over_socket, local.io):
        await io.start()
        for number in range(50):
            io.send(pod(number))
    await until(lambda: len(causes) == 2)
    assert all("10 values wait" in cause for cause in causes)
    brain_socket.close()


async def test_a_local_brain_that_waits_is_woken_by_an_event():
    local = link.LocalLink(lambda _: None, lambda _: None)
    await local.io.start()
    reader = asyncio.ensure_future(asyncio.to_thread(local.brain.receive, 10.0))
    await asyncio.sleep(0.02)
    local.io.send(pod(1))
    assert await asyncio.wait_for(reader, 5) == [pod(1)]


async def test_an_unreadable_message_of_the_brain_ends_the_link_with_a_cause():
    both = Io()
    await both.io.start()
    both.brain_socket.sendall(struct.pack(">I", 3) + b"\x93\x01\x02")
    await asyncio.wait_for(both.ended.wait(), 5)
    assert "unreadable" in both.ends[0]
    assert both.messages == []


def test_a_frame_that_announces_too_much_ends_the_brains_link():
    io_socket, brain_socket = link.socket_pair()
    brain = link.BrainLink(brain_socket)
    io_socket.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(link.LinkClosed, match="limit"):
        brain.receive(1.0)
    io_socket.close()
    brain.close()


def test_a_frame_cut_by_the_end_of_the_peer_is_not_delivered():
    io_socket, brain_socket = link.socket_pair()
    brain = link.BrainLink(brain_socket)
    io_socket.sendall(link.frame([pod(1)]) + link.frame([pod(2)])[:-1])
    io_socket.close()
    assert brain.receive(1.0) == [pod(1)]
    with pytest.raises(link.LinkClosed, match="middle"):
        brain.receive(1.0)
    brain.close()


def test_a_poll_does_not_wait_for_the_rest_of_a_frame():
    io_socket, brain_socket = link.socket_pair()
    brain = link.BrainLink(brain_socket)
    whole = link.frame([pod(1)])
    io_socket.sendall(whole[:10])
    assert brain.receive(0) == []
    io_socket.sendall(whole[10:])
    assert brain.receive(0) == [pod(1)]
    io_socket.close()
    brain.close()


def test_frames_are_cut_from_a_stream_in_whatever_pieces_it_comes():
    stream = b"".join(link.frame([pod(number)]) for number in range(3))
    reader = link.FrameReader()
    bodies: list[bytes] = []
    for byte in stream:
        bodies += reader.feed(bytes([byte]))
    assert [feed.to_brain.decode(body)[0].pod.uid for body in bodies] == ["u0", "u1", "u2"]
    assert not reader.partial


def test_a_brain_can_be_given_its_end_as_a_descriptor():
    io_socket, brain_socket = link.socket_pair()
    brain = link.BrainLink.from_descriptor(brain_socket.detach())
    thread = threading.Thread(target=io_socket.sendall, args=(link.frame([pod(3)]),))
    thread.start()
    assert brain.receive(5.0) == [pod(3)]
    thread.join()
    brain.send([HANDOVER])
    assert io_socket.recv(4, socket.MSG_WAITALL)
    io_socket.close()
    brain.close()
