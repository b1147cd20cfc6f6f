// Mouse and touch on the picture and the overview: point, drag, pinch, wheel.

const DRAG_PIXELS = 4;
const AXIS_PIXELS = 28;
const WHEEL_FACTOR = 1.0015;

/**
 * `act` has point(x, y), leave(), grab(), drag(part), released(), pinch(factor, part), wheel(factor, part), pan(part), and
 * for a drag with Shift or along the axis selectBegin(part), selectTo(part), selected().
 */
export function watchPicture(canvas, act) {
  const pointers = new Map();
  let begin = null;
  let apart = 0;

  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, event);
    canvas.setPointerCapture(event.pointerId);
    const selects = event.shiftKey || event.offsetY > canvas.clientHeight - AXIS_PIXELS;
    if (pointers.size === 1) begin = { x: event.offsetX, moved: false, selects };
    if (pointers.size === 2) apart = distance(pointers);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, event);
    if (pointers.size === 2) {
      const now = distance(pointers);
      act.pinch(apart / Math.max(1, now), middle(pointers) / canvas.clientWidth);
      apart = now;
    } else if (pointers.size === 1 && begin) {
      const by = event.offsetX - begin.x;
      if (!begin.moved && Math.abs(by) > DRAG_PIXELS) {
        begin.moved = true;
        if (begin.selects) act.selectBegin(begin.x / canvas.clientWidth);
        else {
          canvas.classList.add("dragged");
          act.grab();
        }
      }
      if (begin.moved && begin.selects) act.selectTo(event.offsetX / canvas.clientWidth);
      else if (begin.moved) act.drag(-by / canvas.clientWidth);
      act.point(event.offsetX, event.offsetY);
    } else if (!pointers.size) {
      canvas.classList.toggle("axis", event.offsetY > canvas.clientHeight - AXIS_PIXELS);
      act.point(event.offsetX, event.offsetY);
    }
  });
  const release = (event) => {
    pointers.delete(event.pointerId);
    if (begin && !begin.moved) act.point(event.offsetX, event.offsetY);
    if (begin?.moved && begin.selects) act.selected();
    begin = null;
    act.released();
    canvas.classList.remove("dragged");
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !pointers.size) act.leave();
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const sideways =
        Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
      if (sideways) act.pan(sideways / canvas.clientWidth);
      else act.wheel(WHEEL_FACTOR ** event.deltaY, event.offsetX / canvas.clientWidth);
    },
    { passive: false },
  );
}

/** `seek` is called with the new centre of the view, as a fraction of the overview's width. */
export function watchOverview(holder, seek) {
  let held = false;
  const at = (event) => seek((event.clientX - holder.getBoundingClientRect().left) / holder.clientWidth);
  holder.addEventListener("pointerdown", (event) => {
    held = true;
    holder.setPointerCapture(event.pointerId);
    at(event);
  });
  holder.addEventListener("pointermove", (event) => held && at(event));
  for (const name of ["pointerup", "pointercancel"]) {
    holder.addEventListener(name, () => {
      held = false;
    });
  }
}

function distance(pointers) {
  const [a, b] = [...pointers.values()];
  return Math.max(1, Math.abs(a.clientX - b.clientX));
}

function middle(pointers) {
  const [a, b] = [...pointers.values()];
  return (a.offsetX + b.offsetX) / 2;
}
