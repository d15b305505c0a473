// What htmx has to be told: pages work without either.

"use strict";

(() => {
  let isPressed = false;
  const press = () => { isPressed = true; };
  // After the click that a release makes, which a part that is gone would not get.
  const release = () => { setTimeout(() => { isPressed = false; }); };
  addEventListener("pointerdown", press, true);
  addEventListener("pointerup", release, true);
  addEventListener("pointercancel", release, true);

  const holdsSelection = (part) => {
    const selection = getSelection();
    return !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  // A part that is being used stays as it is until the next time.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (isPressed || holdsSelection(event.detail.target)) {
      event.detail.shouldSwap = false;
    }
  });

  // What is no longer fresh must not look as if it were.
  const tell = (isStale) => { document.getElementById("stale").hidden = !isStale; };
  document.addEventListener("htmx:afterRequest", (event) => tell(!event.detail.successful));
})();
