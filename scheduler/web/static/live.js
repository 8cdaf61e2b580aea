// Follows the scheduler: when it has news, the marked parts of the page are fetched anew and exchanged.
// Without this script the page shows the same and is reloaded by hand.
"use strict";

(() => {
  const follow = document.getElementById("follow");
  const said = document.getElementById("said");
  const QUIET = 30000; // milliseconds between two sentences for those who listen
  const CALM = 1000 * document.body.dataset.calm; // milliseconds between two looks; a large picture changes less often
  let fetched = 0, paused = false, behind = false, fetching = false, spoken = Date.now(), before = count();

  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain";
  button.addEventListener("click", () => { paused = !paused; show(); if (!paused) refresh(); });
  const words = document.createElement("span");
  follow.replaceChildren(words, " ", button);

  let link = "connecting";
  function show() {
    words.textContent = paused ? "not followed" : link === "open" ? "followed live" : link === "lost" ? "connection lost, trying again" : "connecting";
    words.className = !paused && link === "lost" ? "lost" : "";
    button.textContent = paused ? "Follow" : "Pause";
  }

  function count() {
    const here = document.querySelector(".count, .cards");
    return here ? here.textContent.replace(/\s+/g, " ").trim() : "";
  }

  function busy(part) {
    const chosen = document.getSelection();
    return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
  }

  function exchange(part, fresh) {
    if (part.innerHTML === fresh.innerHTML || busy(part)) return;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const where = focused && [focused.tagName, focused.getAttribute("href"), focused.getAttribute("aria-label")];
    const scrolled = [...part.querySelectorAll(".wide")].map((one) => [one.scrollLeft, one.scrollTop]);
    part.innerHTML = fresh.innerHTML;
    [...part.querySelectorAll(".wide")].forEach((one, i) => { if (scrolled[i]) [one.scrollLeft, one.scrollTop] = scrolled[i]; });
    if (where) {
      const again = [...part.querySelectorAll(where[0])].find((one) => one.getAttribute("href") === where[1] && one.getAttribute("aria-label") === where[2]);
      if (again) again.focus({ preventScroll: true });
    }
  }

  async function refresh() {
    if (paused) return;
    if (document.hidden || fetching || Date.now() - fetched < CALM) { behind = true; return; }
    behind = false;
    fetching = true;
    fetched = Date.now();
    try {
      const answer = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" } });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.querySelectorAll("[data-live]").forEach((part) => {
        const fresh = page.getElementById(part.id);
        if (fresh) exchange(part, fresh);
      });
      const heading = page.querySelector("h1");
      if (heading && document.querySelector("h1").textContent !== heading.textContent) location.reload();
      tell();
    } catch (error) {
      behind = true; // the next news tries again
    } finally {
      fetching = false;
    }
  }

  function tell() {
    const now = count();
    if (now === before || Date.now() - spoken < QUIET) return;
    before = now;
    spoken = Date.now();
    said.textContent = now.slice(0, 300);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && behind) refresh(); });
  const source = new EventSource(document.body.dataset.events);
  let first = true;
  source.addEventListener("open", () => { link = "open"; show(); });
  source.addEventListener("error", () => { link = "lost"; show(); });
  source.addEventListener("news", () => { if (first) { first = false; if (link !== "lost") return; } refresh(); });
  setInterval(() => { if (behind) refresh(); }, 2000);
  setInterval(refresh, 30000); // where nothing happens, ages still grow
  window.addEventListener("pagehide", () => source.close());
  show();
})();
