"""The page in a real browser, beside a running scheduler on an embedded control plane with fake nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Route, expect, sync_playwright

from tests.controlplane.rest import Rest
from tests.e2e.browser import HOW, find
from tests.scenarios.planes import Scheduler

pytestmark = pytest.mark.xdist_group("page")

SAMPLES = Path(__file__).parents[2] / "config" / "samples"
EVIL = "<img src=x onerror=alert(1)>"
PODS = "/api/v1/namespaces/default/pods"
GROUPS = "/apis/scheduling.muster.sh/v1alpha1/namespaces/default/podgroups"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
PAGES = ("/", "/gangs/default/train", "/nodes", "/topology", "/about")
"""Every table, form and picture is on one of them."""
WITHIN = 30_000
"""Milliseconds."""


class House:
    """A playground of two nodes with two GPUs each, and a scheduler."""

    def __init__(self, directory: Path) -> None:
        kubeconfig = self.kubeconfig = directory / "kubeconfig"
        self.playground = subprocess.Popen(
            [sys.executable, "-m", "scheduler", "playground", "--nodes", "2", "--write-kubeconfig", kubeconfig],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert self.playground.stdout is not None
        for line in self.playground.stdout:
            if "Ctrl-C" in line:
                break
        self.rest = Rest(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"], token="")
        self.scheduler = Scheduler(kubeconfig, directory)
        self.scheduler.start()

    def apply(self, sample: str) -> None:
        paths = {"Job": "/apis/batch/v1/namespaces/default/jobs"}
        for document in yaml.safe_load_all((SAMPLES / sample).read_text()):
            group = f"/apis/{document['apiVersion']}/namespaces/default/podgroups"
            self.rest.create(paths.get(document["kind"], group), document)

    def group(self, name: str, queue: str) -> None:
        """Create a group without members."""
        made = {
            "apiVersion": "scheduling.muster.sh/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"minMember": 1, "queue": queue},
        }
        self.rest.create(GROUPS, made)

    def wait_bound(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while sum(bool(pod["spec"].get("nodeName")) for pod in self.rest.list(PODS)) != count:
            assert time.monotonic() < deadline, f"not {count} pods are bound within a minute"
            time.sleep(0.05)

    def url(self, path: str = "/") -> str:
        return f"http://{self.scheduler.address()}/page{path}"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = House(tmp_path_factory.mktemp("page"))
    wired = {
        "apiVersion": "scheduling.muster.sh/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "hosts"},
        "spec": {"levels": [{"name": "host", "label": "kubernetes.io/hostname"}]},
    }
    made.rest.create("/apis/scheduling.muster.sh/v1alpha1/topologies", wired)
    made.apply("gpu-hog.yaml")
    made.wait_bound(3)
    made.apply("volcano-gang.yaml")
    made.group("evil", EVIL)
    yield made
    made.scheduler.stop()
    made.playground.send_signal(signal.SIGINT)
    assert made.playground.wait(60) == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = find()
    if path is None and not os.environ.get("CI"):
        pytest.skip(HOW)
    assert path is not None, HOW
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


class Visit:
    """A window whose every request, error and dialog is noted."""

    def __init__(self, browser: Browser, **options: Any) -> None:
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(WITHIN)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        self.page.on(
            "console", lambda said: self.wrong.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))

    def _said(self, told: ConsoleMessage) -> None:
        if told.type in ("error", "warning"):
            self.wrong.append(told.text)

    def _asked(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture
def visit(browser: Browser, house: House, request: pytest.FixtureRequest) -> Iterator[Visit]:
    made = Visit(browser, **getattr(request, "param", {}))
    yield made
    made.context.close()
    assert made.wrong == []
    assert made.hosts <= {house.scheduler.address()}, "something was asked of somebody else"


def test_the_page_follows_a_gang_from_waiting_to_running(house: House, visit: Visit) -> None:
    page = visit.page
    page.goto(house.url())
    row = page.locator("section", has=page.locator("#waiting")).get_by_role("row").filter(has_text="default/train")
    expect(row).to_contain_text("needs 4 example.com/gpu for 4 members, 1 free on 2 nodes, 3 short", timeout=WITHIN)
    expect(page.locator("#follow")).to_contain_text("followed live")
    row.get_by_role("link", name="default/train").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("default/train")
    expect(page.locator(".reason")).to_contain_text("3 short; held by 3 pods of default/gpu-hog")
    page.evaluate("window.stays = true")
    queue = page.get_by_role("link", name="default", exact=True).first
    queue.focus()
    house.rest.delete("/apis/batch/v1/namespaces/default/jobs/gpu-hog", propagation="Background")
    members = page.get_by_role("region", name="Members", exact=True)
    expect(members.get_by_role("row").filter(has_text="bound")).to_have_count(4, timeout=WITHIN)
    life = page.locator(".life")
    expect(life).to_contain_text(re.compile(r"bound\s+4 of 4 members bound"), timeout=WITHIN)
    expect(life).to_contain_text("4 pods on 2 nodes")
    expect(life).to_contain_text("3 short")
    assert page.evaluate("window.stays"), "it was loaded anew and not followed"
    expect(queue).to_be_focused()
    page.goto(house.url("/sessions"))
    page.get_by_role("row").filter(has_text="default/train").get_by_role("rowheader").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile("Session s-"))
    expect(page.get_by_role("region", name="Placements")).to_contain_text("default/train")


def test_a_stream_that_is_refused_is_asked_for_again(house: House, browser: Browser) -> None:
    visit = Visit(browser)
    page, asked = visit.page, list[str]()

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.fulfill(status=503, body="too many")
        else:
            route.continue_()

    page.clock.install()
    page.route("**/page/events*", answer)
    page.goto(house.url())
    expect(page.locator("#follow")).to_contain_text("connection lost")
    assert len(asked) == 1
    page.clock.run_for(16_000)
    expect(page.locator("#follow")).to_contain_text("followed live")
    assert len(asked) == 2
    visit.context.close()


def test_what_a_user_wrote_does_nothing(house: House, visit: Visit) -> None:
    for path in ("/", "/gangs", "/gangs/default/evil"):
        visit.page.goto(house.url(path))
        expect(visit.page.locator("main")).to_contain_text(EVIL, timeout=WITHIN)
        assert visit.page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("visit", "rules"),
    [
        pytest.param({"color_scheme": "light"}, {"type": "tag", "values": RULES}, id="light"),
        pytest.param({"color_scheme": "dark"}, ["color-contrast"], id="dark", marks=pytest.mark.slow),
    ],
    indirect=["visit"],
)
def test_axe_finds_nothing_to_complain_about(house: House, visit: Visit, rules: object) -> None:
    node = house.rest.list("/api/v1/nodes")[0]["metadata"]["name"]
    for path in (*PAGES, f"/nodes/{node}"):
        visit.page.goto(house.url(path))
        found = Axe().run(visit.page, options={"runOnly": rules}).response
        told = [(path, one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found["violations"]]
        assert told == []
        assert found["passes"]


def test_the_heat_map_has_a_square_for_each_node(house: House, visit: Visit) -> None:
    visit.page.goto(house.url("/topology"))
    expect(visit.page.get_by_role("img", name=re.compile("Heat map of hosts"))).to_be_visible()
    cells = visit.page.locator("svg.heat rect[class^=load-]")
    expect(cells).to_have_count(2)
    expect(cells.first.locator("title")).to_have_text(re.compile(r"[012] of 2 example.com/gpu free"))


def test_a_keyboard_is_enough(house: House, visit: Visit) -> None:
    page = visit.page
    page.goto(house.url("/gangs?state=all"))
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    reached: list[str] = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "(() => { const e = document.activeElement; const o = getComputedStyle(e);"
                " return `${e.tagName} ${e.name || e.textContent.trim()} ${o.outlineStyle}`; })()"
            )
        )
        if reached[-1].startswith("A default/train"):
            break
    assert reached[-1] == "A default/train solid", reached
    assert [word.split()[1] for word in reached[:4]] == ["state", "queue", "namespace", "q"]
    assert all(word.endswith(("solid", "auto")) for word in reached), "a focus that cannot be seen"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("default/train")
    pause = page.get_by_role("button", name="Pause")
    pause.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Follow")).to_be_focused()
    expect(page.locator("#follow")).to_contain_text("not followed")


def test_the_focus_stays_with_its_gang_when_rows_move(house: House, visit: Visit) -> None:
    page = visit.page
    page.goto(house.url("/gangs?state=all"))
    link = page.get_by_role("link", name="default/train", exact=True)
    link.focus()
    expect(page.locator("#follow")).to_contain_text("followed live")
    house.group("before", "a")
    expect(page.get_by_role("row").filter(has_text="default/before")).to_be_visible(timeout=WITHIN)
    expect(link).to_be_focused()


@pytest.mark.parametrize("visit", [{"java_script_enabled": False}], indirect=True, ids=["no script"])
def test_it_says_the_same_without_a_script(house: House, visit: Visit) -> None:
    page = visit.page
    page.goto(house.url())
    expect(page.get_by_role("heading", level=2, name="Queues")).to_be_visible()
    expect(page.locator("footer")).to_contain_text("reload it")
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_label("State").select_option("has room")
    page.get_by_role("button", name="Show").click()
    assert "state=free" in page.url
    expect(page.locator(".count")).to_contain_text("node")
    expect(page.get_by_label("State")).to_have_value("free")


@pytest.mark.parametrize("visit", [{"viewport": {"width": 360, "height": 740}}], indirect=True, ids=["narrow"])
def test_a_narrow_window_scrolls_tables_and_nothing_else(house: House, visit: Visit) -> None:
    for path in ("/", "/gangs?state=all", "/gangs/default/train", "/nodes", "/sessions", "/about"):
        visit.page.goto(house.url(path))
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 360, path


@pytest.mark.slow
def test_a_standby_names_the_one_that_leads(house: House, browser: Browser, tmp_path: Path) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "muster-7_1_abc", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "page-standby", "namespace": "muster-system"},
        "spec": held,
    }
    house.rest.create("/apis/coordination.k8s.io/v1/namespaces/muster-system/leases", lease)
    standby = Scheduler(house.kubeconfig, tmp_path, config={"leaderElection": {"name": "page-standby"}})
    visit = Visit(browser)
    try:
        standby.start()
        visit.page.goto(f"http://{standby.address()}/page/gangs")
        expect(visit.page.get_by_role("heading", level=1)).to_have_text("Standby")
        expect(visit.page.locator("main")).to_contain_text("muster-7_1_abc", timeout=WITHIN)
        visit.page.get_by_role("link", name="About this one").click()
        expect(visit.page.locator("main")).to_contain_text("standby: muster-7_1_abc leads")
    finally:
        visit.context.close()
        standby.stop()
    assert visit.wrong == []
