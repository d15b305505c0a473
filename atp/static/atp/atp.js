// What htmx has to be told: pages work without either.

"use strict";

(() => {
  let pressed = null;
  let focused = null;
  // A button may come up where the page does not hear of it.
  const press = () => { clearTimeout(pressed); pressed = setTimeout(release, 5000); };
  // After the click that a release makes, which a part that is gone would not get.
  const release = () => { setTimeout(() => { clearTimeout(pressed); pressed = null; }); };
  addEventListener("pointerdown", press, true);
  addEventListener("pointerup", release, true);
  addEventListener("pointercancel", release, true);

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
    const link = document.activeElement.closest("a:not([id])");
    focused = event.detail.target.contains(link) ? link.getAttribute("href") : null;
  });

  // htmx gives the focus back to what has an id; links are known by where they lead.
  document.addEventListener("htmx:afterSettle", () => {
    if (focused !== null && document.activeElement === document.body) {
      const links = [...document.querySelectorAll("main a")];
      links.find((link) => link.getAttribute("href") === focused)?.focus({ preventScroll: true });
    }
    focused = null;
  });

  // What was done a while ago is not news beside what refreshes itself.
  setTimeout(() => {
    document.querySelectorAll(".told").forEach((told) => told.remove());
  }, 10000);

  // What is no longer fresh must not look as if it were.
  const tell = (isStale) => { document.getElementById("stale").hidden = !isStale; };
  document.addEventListener("htmx:afterRequest", (event) => tell(!event.detail.successful));
})();
