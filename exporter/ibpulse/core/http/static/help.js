// Buttons that explain what is next to them, by mouse, touch and keyboard. All share one box, which Escape closes.

import { element } from "./elements.js";

const MARGIN = 8;
let box = null;

/** Append a button that shows `text`, which explains `name`. */
export function helpButton(parent, name, text) {
  const button = element("button", "about", parent);
  button.type = "button";
  button.textContent = "i";
  button.setAttribute("aria-label", `About ${name}`);
  button.setAttribute("aria-expanded", "false");
  button.addEventListener("click", () => explain(button, name, text));
  return button;
}

function explain(button, name, text) {
  const again = box?.matches(":popover-open") && box.source === button;
  box?.hidePopover();
  if (again) return;
  box ??= makeBox();
  box.source = button;
  box.replaceChildren();
  element("b", "", box).textContent = name;
  element("p", "", box).textContent = text;
  box.showPopover();
  button.setAttribute("aria-expanded", "true");
  place(button);
}

function makeBox() {
  const made = element("div", "explanation", document.body);
  made.popover = "auto";
  made.setAttribute("role", "status");
  made.addEventListener("toggle", (event) => {
    if (event.newState === "closed") made.source.setAttribute("aria-expanded", "false");
  });
  return made;
}

/** Below the button, or above it where there is no room. */
function place(button) {
  const at = button.getBoundingClientRect();
  const left = Math.min(at.left, innerWidth - box.offsetWidth - MARGIN);
  const below = at.bottom + MARGIN;
  const top = below + box.offsetHeight > innerHeight ? at.top - box.offsetHeight - MARGIN : below;
  Object.assign(box.style, { left: `${Math.max(MARGIN, left)}px`, top: `${Math.max(MARGIN, top)}px` });
}
