// What htmx has to be told: pages work without either.

"use strict";

(() => {
  let pressed = null;
  let focused = null;
  let unfolded = [];
  let moved = [];
  // A button may come up where the page does not hear of it.
  const press = () => { clearTimeout(pressed); pressed = setTimeout(release, 10000); };
  // After the click that a release makes, which a part that is gone would not get.
  const release = () => { setTimeout(() => { clearTimeout(pressed); pressed = null; }); };
  addEventListener("pointerdown", press, true);
  addEventListener("pointerup", release, true);
  addEventListener("pointercancel", release, true);
  // The space bar presses a button when it comes up.
  const isSpace = (event) => event.key === " ";
  addEventListener("keydown", (event) => { if (isSpace(event)) press(); }, true);
  addEventListener("keyup", (event) => { if (isSpace(event)) release(); }, true);

  // What the user has chosen, which this browser keeps if it may.
  const kept = (name, value) => {
    try {
      if (value === undefined) return localStorage.getItem(`atp-${name}`);
      localStorage.setItem(`atp-${name}`, value);
    } catch { /* without storage the choice lasts as long as the page */ }
    return null;
  };

  // Nobody looks at a hidden tab: it asks again as soon as it is shown. Nor does a part ask more
  // often than the user wants; a timer of the browser may be a little early.
  const choice = document.getElementById("refresh");
  const asked = new Map();
  const refreshNow = () => {
    asked.clear();
    document.querySelectorAll("[hx-get]").forEach((part) => htmx.trigger(part, "shown"));
  };
  choice.value = kept("refresh") ?? choice.value;
  if (choice.selectedIndex < 0) choice.selectedIndex = 0;
  choice.closest("label").hidden = document.querySelector("[hx-get]") === null;
  choice.addEventListener("change", () => kept("refresh", choice.value));
  document.addEventListener("htmx:beforeRequest", (event) => {
    const [every, now, id] = [1000 * choice.value, Date.now(), event.detail.elt.id];
    if (document.hidden || every === 0 || now - (asked.get(id) ?? 0) < every - 500) {
      event.preventDefault();
    } else {
      asked.set(id, now);
    }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refreshNow(); });

  // Keys, unless the user types or has switched them off.
  const keys = document.getElementById("keys");
  const uses = document.getElementById("use-keys");
  const isTyping = (target) => target.closest("input, select, textarea, dialog") !== null;
  const actions = {
    "?": () => keys.showModal(),
    "/": () => document.querySelector(".filters input, .filters select")?.focus(),
    "r": refreshNow,
  };
  uses.checked = kept("keys") !== "off";
  uses.addEventListener("change", () => kept("keys", uses.checked ? "on" : "off"));
  document.getElementById("show-keys").hidden = false;
  document.getElementById("show-keys").addEventListener("click", actions["?"]);
  document.addEventListener("keydown", (event) => {
    if (!uses.checked || event.ctrlKey || event.metaKey || event.altKey) return;
    if (isTyping(event.target)) return;
    const page = document.querySelectorAll("header nav a")[event.key - 1];
    const act = actions[event.key] ?? (page && (() => page.click()));
    if (act === undefined) return;
    event.preventDefault();
    act();
  });

  const holdsSelection = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(part);
  };

  const isTicked = (part) => part.querySelector("input:checked") !== null;

  // A part that is being used stays as it is until the next time.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    if (pressed !== null || holdsSelection(part) || isTicked(part)) {
      event.detail.shouldSwap = false;
      return;
    }
    unfolded = [...event.detail.target.querySelectorAll("details[open]")].map((part) => part.id);
    moved = [...event.detail.target.querySelectorAll(".graph, .numbers")]
      .map((part) => [part.id, part.scrollLeft, part.scrollTop]);
    const link = document.activeElement.closest("a:not([id])");
    focused = event.detail.target.contains(link) ? link.getAttribute("href") : null;
  });

  // htmx gives the focus back to what has an id; links are known by where they lead.
  document.addEventListener("htmx:afterSettle", () => {
    unfolded.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    unfolded = [];
    moved.forEach(([id, left, top]) => document.getElementById(id)?.scrollTo(left, top));
    moved = [];
    if (focused !== null && document.activeElement === document.body) {
      const links = [...document.querySelectorAll("main a")];
      links.find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    }
    focused = null;
  });

  // A second click while the answer is under way would do the same again.
  let sent = null;
  document.addEventListener("submit", (event) => {
    if (event.target.getAttribute("method") !== "post") return;
    if (sent !== null) { event.preventDefault(); return; }
    sent = setTimeout(() => { sent = null; }, 10000);
  });
  addEventListener("pageshow", () => { clearTimeout(sent); sent = null; });

  // What was done a while ago is not news beside what refreshes itself.
  setTimeout(() => {
    document.querySelectorAll(".told").forEach((told) => told.remove());
  }, 10000);

  // What is no longer fresh must not look as if it were.
  const tell = (isStale) => { document.getElementById("stale").hidden = !isStale; };
  document.addEventListener("htmx:afterRequest", (event) => tell(!event.detail.successful));
})();
