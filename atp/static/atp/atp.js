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

  // Nobody looks at a hidden tab: it asks again as soon as it is shown.
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden) event.preventDefault();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    document.querySelectorAll("[hx-get]").forEach((part) => htmx.trigger(part, "shown"));
  });

  const holdsSelection = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && selection.getRangeAt(0).intersectsNode(part);
  };

  // A part that is being used stays as it is until the next time.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (pressed !== null || holdsSelection(event.detail.target)) {
      event.detail.shouldSwap = false;
      return;
    }
    unfolded = [...event.detail.target.querySelectorAll("details[open]")].map((part) => part.id);
    moved = [...event.detail.target.querySelectorAll(".graph")]
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
