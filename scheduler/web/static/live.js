// Follows the scheduler: when it has news, the marked parts of the page are fetched anew and exchanged.
// Without this script the page shows the same and is reloaded by hand.
"use strict";

(() => {
  const follow = document.getElementById("follow");
  const said = document.getElementById("said");
  const QUIET = 30000; // milliseconds between two sentences for those who listen
  const AGAIN = 15000; // milliseconds until a stream that was refused is asked for again
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

  // What has not changed stays the same node, so that focus, place and whoever reads it aloud are not disturbed.
  function exchange(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeName !== fresh.nodeName) { old.replaceWith(fresh.cloneNode(true)); return; }
    if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return; }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const had = [...old.childNodes], has = [...fresh.childNodes];
    has.forEach((child, i) => { if (i < had.length) exchange(had[i], child); else old.append(child.cloneNode(true)); });
    had.slice(has.length).forEach((child) => child.remove());
  }

  function renew(part, fresh) {
    if (busy(part)) return;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const led = focused && focused.getAttribute("href");
    exchange(part, fresh);
    if (!led || (document.activeElement === focused && focused.getAttribute("href") === led)) return;
    const again = [...part.querySelectorAll("a")].find((one) => one.getAttribute("href") === led);
    if (again) again.focus({ preventScroll: true }); else focused.blur(); // never onto a link that leads elsewhere
  }

  async function refresh() {
    if (paused) return;
    if (document.hidden || fetching || Date.now() - fetched < CALM) { behind = true; return; }
    behind = false;
    fetching = true;
    fetched = Date.now();
    try {
      const answer = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" } });
      if (answer.status >= 500) { behind = true; return; } // what is shown is better than that it cannot be shown now
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.querySelectorAll("[data-live]").forEach((part) => {
        const fresh = page.getElementById(part.id);
        if (fresh) renew(part, fresh);
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
  let source, first = true;
  function listen() {
    source = new EventSource(document.body.dataset.events);
    source.addEventListener("open", () => { link = "open"; show(); });
    source.addEventListener("error", () => {
      link = "lost";
      show();
      if (source.readyState === EventSource.CLOSED) setTimeout(listen, AGAIN); // refused: it does not try by itself
    });
    source.addEventListener("news", () => { if (first) { first = false; if (link !== "lost") return; } refresh(); });
  }
  listen();
  setInterval(() => { if (behind) refresh(); }, 2000);
  setInterval(refresh, 30000); // where nothing happens, ages still grow
  window.addEventListener("pagehide", () => source.close());
  show();
})();
