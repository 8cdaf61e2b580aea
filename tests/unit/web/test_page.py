"""The page as HTML: what each address shows, of real sessions on small clusters."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import time
import tomllib
import weakref
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scheduler.cluster import feed
from scheduler.observe import explain
from scheduler.observe.journal import Journal
from scheduler.web import site as module
from scheduler.web.site import Site, Unanswerable
from tests.unit.framework.world import GPU, World, shape
from tests.unit.web.house import LEADS, House

EVIL = "x<script>alert(1)</script>\"'&amp;"
VOID = frozenset({"meta", "link", "input", "br"})


class Checked(HTMLParser):
    """Fails on tags that do not match, ids that are there twice, scripts and styles inside the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        assert "style" not in found, tag
        assert not [name for name in found if name.startswith("on")], found
        assert tag != "script" or found["src"].startswith("/page/static/"), found  # type: ignore[union-attr]
        if "id" in found:
            assert found["id"] not in self.ids, found
            self.ids.add(found["id"] or "")
        if tag == "a":
            self.links.append(found["href"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.get_starttag_text()


def checked(text: str) -> Checked:
    parser = Checked()
    parser.feed(text)
    assert parser.open == []
    return parser


def words(text: str) -> str:
    """The text of a page without its tags, in single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@pytest.fixture
def busy() -> House:
    """Two racks of two nodes with 4 GPUs; one gang runs, two wait behind it, one lacks members."""
    world = World()
    world.topology("fabric", ("rack", "rack"))
    for number in range(4):
        labels = {"rack": f"r{number // 2}", "pool": "a100" if number < 2 else "h100"}
        world.node(f"n{number}", gpu=4, labels=labels, unschedulable=number == 3)
    world.queue("team", deserved=((GPU, 8),), guarantee=((GPU, 4),), limit=((GPU, 16),))
    house = House(world)
    now = world.now
    world.gang("runs", 3, of=shape(gpu=4), queue="team", created=now - 500)
    house.session()
    world.carry_out()
    world.gang("first", 2, of=shape(gpu=4), queue="team", created=now - 400)
    world.gang("second", 2, of=shape(gpu=4), queue="team", created=now - 300)
    world.gang("third", 3, count=1, of=shape(gpu=4), queue="team", created=now - 200)
    house.session(later=1.0)
    return house


PATHS = (
    "/page/", "/page/gangs", "/page/gangs/ns/first", "/page/gangs/ns/runs", "/page/queues/team", "/page/queues/root",
    "/page/nodes", "/page/nodes/n0", "/page/topology", "/page/sessions", "/page/sessions/s-000001",
    "/page/sessions/s-000002", "/page/about",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_is_sound_and_every_link_in_it_leads_somewhere(busy: House, path: str) -> None:
    reply = await busy.get(path)
    assert reply.status == 200
    assert "default-src 'self'" in reply.more
    assert "Cache-Control: no-store" in reply.more
    page = checked(reply.body.decode())
    assert {"main", "live", "state", "said"} <= page.ids
    for link in sorted(set(page.links)):
        if not link.startswith("#"):
            where, _, query = link.partition("#")[0].partition("?")
            assert (await busy.get(where, query)).status == 200, link


async def test_the_overview_shows_queues_and_who_waits_behind_whom(busy: House) -> None:
    text = words(await busy.text("/page/"))
    assert "gpu in use 12 of 16" in text
    assert "Gangs waiting 3" in text
    assert "team 12 4 8 16 4 " in text  # used, guaranteed, deserved, limit, borrowed
    assert "next in its queue" in text
    assert "behind ns/first" in text
    assert "NotEnoughMembers: 1 of 3 members exist" in text
    assert "s-000001" in text


async def test_a_gang_says_why_in_the_words_of_its_condition(busy: House) -> None:
    result = busy.world.result
    assert result is not None
    why = explain.sentence(result.verdicts["muster/ns/second"])
    page = await busy.text("/page/gangs/ns/second")
    text = words(page)
    assert why in text
    assert "2 of 2 in queue team, 2 of 2 in all, behind ns/first" in text
    assert "Nobody is evicted for it" in text
    assert "of no lower priority in queue team: ns/runs" in text
    assert "3 pods of ns/runs (12)" in text
    assert '<a href="/page/gangs/ns/runs">3 pods of ns/runs</a>' in page


async def test_a_gang_that_runs_shows_its_members_where_they_are_and_how_it_came_there(busy: House) -> None:
    text = words(await busy.text("/page/gangs/ns/runs"))
    assert re.search(r"0 runs-0 bound Running n[012] r[01] ", text)
    assert "placed 3 pods on 3 nodes s-000001" in text
    assert "Holds 12 example.com/gpu on 3 nodes" in text


async def test_what_users_wrote_is_never_markup() -> None:
    world = World()
    world.topology(EVIL, ("rack", "rack"))
    world.node(f"n{EVIL}", gpu=1, labels={"rack": EVIL, "pool": EVIL})
    world.queue(EVIL)
    world.gang(EVIL, 2, of=shape(gpu=1), queue=EVIL, namespace=EVIL)
    world.gang("waits", 2, of=shape(gpu=1), queue=EVIL)
    house = House(world)
    house.session()
    house.now(holder=EVIL, missing=(EVIL,), bad={f"Pod {EVIL}": EVIL}, scheduler_names=(EVIL,))
    from urllib.parse import quote

    name = quote(EVIL, safe="")
    pages = (
        *("/page/", "/page/gangs", f"/page/gangs/{name}/{name}", f"/page/queues/{name}", f"/page/queues/{name}nope"),
        *("/page/nodes", f"/page/nodes/n{name}", "/page/topology", "/page/about", f"/page/{name}"),
        *("/page/sessions", "/page/sessions/s-000001", f"/page/sessions/{name}"),
    )
    seen = 0
    for path in pages:
        text = (await house.get(path, f"q={name}" if path == "/page/gangs" else "")).body.decode()
        checked(text)
        assert "<script>alert" not in text
        seen += "x&lt;script&gt;alert(1)" in text
    assert seen >= 9
    house.now(leading=False)
    assert "<script>alert" not in await house.text("/page/")


async def test_filters_and_pages_of_nodes(busy: House) -> None:
    async def names(query: str) -> list[str]:
        return re.findall(r'<th scope="row"><a href="[^"]*">(n\d)</a></th>', await busy.text("/page/nodes", query))

    assert await names("") == ["n0", "n1", "n2", "n3"]
    assert await names("in=rack%3Dr1") == ["n2", "n3"]
    assert await names("label=pool%3Da100&q=1") == ["n1"]
    assert await names("state=cordoned") == ["n3"]
    assert '<span class="phase waits">cordoned</span>' in await busy.text("/page/nodes", "state=cordoned")
    assert '<span class="phase good">ready</span>' in await busy.text("/page/nodes/n0")
    assert await names("state=free") == []
    assert await names("page=7") == ["n0", "n1", "n2", "n3"]
    assert "No node is like that" in await busy.text("/page/nodes", "q=zzz")


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/page/", "resource=gpu", "there is no resource gpu"),
        ("/page/topology", "topology=fabrik", 'there is no topology fabrik; did you mean "fabric"?'),
        ("/page/topology", "resource=x", "there is no resource x"),
        ("/page/nodes", "in=row%3D1", "there is no level row"),
        ("/page/nodes", "in=rack%3Dr9", "level rack has no domain r9"),
        ("/page/nodes", "state=odd", "there is no state odd"),
        ("/page/gangs", "state=weighting", 'there is no state weighting; did you mean "waiting"?'),
    ],
)
async def test_what_is_asked_for_and_not_there_is_said(busy: House, path: str, query: str, said: str) -> None:
    assert said in words(await busy.text(path, query, status=404))


@pytest.mark.parametrize("query", ["&".join(f"a{one}=1" for one in range(40)), "q=" + "x" * 5000])
async def test_an_address_has_its_limits(busy: House, query: str) -> None:
    assert (await busy.get("/page/gangs", query)).status == 400
    assert busy.asked == []


async def test_a_node_shows_who_is_there_and_who_comes(busy: House) -> None:
    busy.world.running("alone", "n0", shape(cpu=2), queue="team", since=busy.world.now - 630)
    busy.world.pod("foreign", shape(cpu=1), node="n0", phase="Running", ours=False)
    busy.world.drop_pod("runs-1")
    busy.session(later=1.0)
    text = words(await busy.text("/page/nodes/n0"))
    assert "rack r0 Pods 3 of 110, 1 of them of other schedulers" in text
    assert "ns/ alone stands alone team bound 2 cpu 10m" in text
    assert re.search(r"ns/ runs-\d ns/runs team bound 4 example.com/gpu", text)
    assert "pool a100" in text
    busy.world.member(busy.world.groups["muster/ns/runs"], 1, shape(gpu=4))
    busy.session(later=1.0)
    assert "runs-1 ns/runs team comes" in words("".join([await busy.text(f"/page/nodes/n{one}") for one in range(3)]))
    assert (await busy.get("/page/nodes/nowhere")).status == 404


async def test_filters_and_pages_of_gangs() -> None:
    world = World()
    world.node("n0", gpu=1).queue("a").queue("b", parent="a")
    for number in range(120):
        queue = "b" if number % 2 else "default"
        world.gang(f"g{number:03}", 1, of=shape(gpu=2), queue=queue, created=1e9 + number)
    house = House(world)
    house.session()

    async def names(query: str) -> list[str]:
        return re.findall(r"</span>(g\d+)</a>", await house.text("/page/gangs", query))

    first, third = await names("state=all"), await names("state=all&page=3")
    assert (len(first), len(third)) == (50, 20)
    assert not {*first} & {*third}
    assert await names("queue=a&q=g00") == ["g001", "g003", "g005", "g007", "g009"]
    assert await names("state=running") == []
    assert 'rel="next" href="/page/gangs?queue=a&amp;page=2"' in await house.text("/page/gangs", "queue=a")


async def test_queues_in_a_cycle_are_shown_once_each_with_true_counts() -> None:
    world = World()
    world.node("n0", gpu=1).queue("a", parent="b").queue("b", parent="a").queue("c", parent="a")
    world.gang("g", 1, of=shape(gpu=1), queue="c")
    house = House(world)
    house.session()
    text = await house.text("/page/queues/c")
    assert re.findall(r">(\w+)</a></li><li aria-current", text) == ["a"]
    assert re.findall(r'<ol class="path">.*</ol>', text)[0].count("<li") == 3
    for name in ("a", "b", "c"):
        assert "0 gangs run, 1 wait." in words(await house.text(f"/page/queues/{name}"))


@pytest.mark.parametrize("made", [True, False], ids=["after a session of nothing", "before the first session"])
async def test_an_empty_cluster_has_pages_too(made: bool) -> None:
    house = House(World())
    if made:
        house.session()
    for path in ("/page/", "/page/gangs", "/page/nodes", "/page/topology", "/page/sessions", "/page/about"):
        checked(await house.text(path))
    assert ("No gang waits" if made else "has not finished its first session") in await house.text("/page/")
    assert (await house.get("/page/gangs/ns/nobody")).status == (404 if made else 200)


async def test_a_standby_says_that_it_is_one_and_who_leads() -> None:
    house = House(World())
    house.now(leading=False, holder="muster-1_abc", identity="muster-0_def")
    text = words(await house.text("/page/"))
    assert "This replica is a standby" in text
    assert "Leads muster-1_abc This one muster-0_def" in text
    assert house.asked == []
    house.now(synced=False, missing=("pods", "nodes"))
    assert "still reading: pods, nodes" in words(await house.text("/page/gangs"))


async def test_many_viewers_ask_the_session_process_once_and_a_new_session_anew(busy: House) -> None:
    await asyncio.gather(*(busy.text("/page/gangs") for _ in range(10)))
    assert len(busy.asked) == 1
    busy.session(later=1.0)
    await busy.text("/page/gangs")
    assert len(busy.asked) == 2


async def test_a_busy_session_process_leaves_the_page_as_it_was_and_says_so(
    busy: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    gate, asked = asyncio.Event(), busy.site._ask_brain
    gate.set()

    async def slow(view: str, arguments: dict[str, str]) -> bytes:
        await gate.wait()
        return await asked(view, arguments)

    busy.site = Site(slow, busy.journal, lambda: busy.status)
    await busy.text("/page/gangs")
    await busy.text("/page/queues/team")
    gate.clear()
    busy.session(later=1.0)
    assert "The session process is busy; this is what it said" in await busy.text("/page/gangs")
    assert "has not answered yet" in await busy.text("/page/nodes", status=503)
    for number in range(20):
        assert (await busy.get("/page/nodes", f"q={number}")).status == 503
    assert len(busy.site._asking) == module.ASKED
    assert "this is what it said" in await busy.text("/page/queues/team")  # known, also where nothing more may be asked
    gate.set()
    await asyncio.sleep(0.05)
    assert "is busy" not in await busy.text("/page/gangs")


async def test_an_odd_address_does_not_answer_for_another(busy: House) -> None:
    assert "n0" in await busy.text("/page/nodes", "in%3Drack=r1")  # no such parameter: all nodes
    assert ">n0<" not in await busy.text("/page/nodes", "in=rack%3Dr1")


async def test_what_the_session_process_cannot_answer_is_said() -> None:
    async def broken(view: str, arguments: dict[str, str]) -> bytes:
        raise Unanswerable("ValueError: <b>")

    text = (await Site(broken, Journal(), lambda: LEADS).answer("/page/", "")).body.decode()
    assert "could not answer: ValueError: &lt;b&gt;" in text


async def test_browsers_are_told_of_news_and_of_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NEWS", 0.0)
    monkeypatch.setattr(module, "PING", 0.05)
    house = House(World())
    reply = await house.get("/page/events")
    assert reply.kind.startswith("text/event-stream")
    stream = reply.stream
    assert stream is not None
    assert await anext(stream) == b"retry: 3000\n\n"

    async def news() -> dict[str, object]:
        while not (piece := (await anext(stream)).decode()).startswith("event: news\ndata: "):
            assert piece.startswith(":")
        found: dict[str, object] = json.loads(piece.removeprefix("event: news\ndata: "))
        return found

    assert await news() == {"session": "", "leading": True, "synced": True}
    house.session()
    assert await news() == {"session": "s-000001", "leading": True, "synced": True}
    assert (await anext(stream)) == b": still here\n\n"
    house.now(leading=False)
    house.site.news()
    assert (await news())["leading"] is False
    await stream.aclose()


async def test_so_many_browsers_follow_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VIEWERS", 1)
    house = House(World())
    first = (await house.get("/page/events")).stream
    assert first is not None
    await anext(first)
    assert (await house.get("/page/events")).status == 503
    await first.aclose()
    assert (await house.get("/page/events")).status == 200


async def test_files_and_nothing_beside_them() -> None:
    house = House(World())
    for name, kind in (("style.css", "text/css"), ("live.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        reply = await house.get(f"/page/static/{name}")
        assert (reply.status, reply.kind.partition(";")[0]) == (200, kind)
    for name in ("..%2Fsite.py", "__init__.py", "", "..%2Ftemplates%2Fbase.html"):
        assert (await house.get(f"/page/static/{name}")).status == 404
    assert (await house.get("/page")).status == 308


def test_what_is_served_is_part_of_the_wheel() -> None:
    root = Path(module.__file__).parents[2]
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["scheduler"]
    for folder in ("templates", "static"):
        for file in (root / "scheduler" / "web" / folder).iterdir():
            assert any(file.relative_to(root / "scheduler").match(pattern) for pattern in patterns), file


async def test_a_session_that_failed_is_said_and_the_desk_keeps_no_session() -> None:
    house = House(World())
    house.session()
    await house.text("/page/")
    assert house.world.result is not None
    ended = weakref.ref(house.world.result.session)
    house.world.result = None
    house.journal.done(feed.SessionDone("s-000002", {}, {"session_failures": 1.0}))
    gc.collect()
    assert ended() is None
    assert "Session s-000002 failed" in words(await house.text("/page/"))


async def test_a_large_page_gives_way_while_it_is_made() -> None:
    world = World()
    world.topology("fabric", ("rack", "rack"))
    for number in range(1500):
        world.node(f"n{number:04}", gpu=8, labels={"rack": f"r{number // 16:03}"})
    house = House(world)
    house.session()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    await house.text("/page/topology")
    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    turns = 0
    await house.text("/page/topology")
    beside.cancel()
    assert turns > 3


async def test_looking_changes_nothing_that_is_decided() -> None:
    def tell(look: bool) -> list[str]:
        world = World()
        world.now = 1.7e9
        world.nodes(4, gpu=4).queue("a", deserved=((GPU, 8),)).queue("b", deserved=((GPU, 8),))
        house = House(world)
        for number in range(6):
            queue = "a" if number % 2 else "b"
            world.gang(f"g{number}", 2, of=shape(gpu=2 + number % 3), queue=queue, created=1e9 + number)
        told = []
        for _ in range(6):
            house.session(later=2.0)
            assert world.result is not None
            assert world.result.session is not None
            told.append(repr(world.result.decisions))
            if look:
                views = [("overview", {}), ("gangs", {}), ("nodes", {}), ("topology", {}), ("queue", {"name": "a"})]
                views += [("gang", {"namespace": "ns", "name": f"g{number}"}) for number in range(6)]
                for view, asked in views:
                    house.desk.answer(world.result.session, world.config.actions, view, asked)
            world.carry_out()
        return told

    assert tell(look=True) == tell(look=False)


async def test_ages_are_those_of_the_clock(busy: House) -> None:
    text = words(await busy.text("/page/gangs"))
    assert abs(time.time() - busy.world.now) < 60
    assert "first team Admitted 0/2 8 example.com/gpu 6m WaitingForQuota" in text


async def test_a_phase_is_told_in_the_word_of_its_object(busy: House) -> None:
    made = {"of": shape(gpu=4), "queue": "team", "created": busy.world.now - 100}
    busy.world.gang("theirs", 2, dialect="volcano", **made)
    busy.world.gang("out", 2, suspended="spec.suspend", **made)
    busy.session(later=1.0)
    text = words(await busy.text("/page/gangs"))
    assert "first team Admitted 0/2" in text
    assert "out team Suspended 0/2" in text
    assert "theirs team Inqueue 0/2" in text
    assert "Inqueue 1" in words(await busy.text("/page/"))
