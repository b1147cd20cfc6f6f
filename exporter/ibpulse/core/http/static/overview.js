// The strip of the whole history below the picture, with an axis, marks of events, and the place of the view.

import { element, fitted } from "./elements.js";
import { clock } from "./format.js";
import { drawRows, paintHeat } from "./heat.js";
import { sortOf } from "./marks.js";
import { GROUND_WORD, paintAxis } from "./picture.js";

const REPAINT_MS = 1_000;
const AXIS = 20;
const SIGNS = { bad: "#ff8f8f", capture: "#6fb7ff" };

export class Overview {
  #slider;
  #thumb;
  #canvas;
  #axis;
  #paintedAt = -Infinity;

  constructor(slider, thumb, canvas) {
    [this.#slider, this.#thumb, this.#canvas] = [slider, thumb, canvas];
    this.#axis = element("canvas", "overview-axis", slider.parentElement);
    this.#axis.setAttribute("aria-hidden", "true");
    slider.after(this.#axis);
  }

  /** Paint everything with the next frame. */
  renew() {
    this.#paintedAt = -Infinity;
  }

  /** Width in pixels of the screen. */
  get columns() {
    return fitted(this.#canvas).canvas.width;
  }

  paint(now, { store, rows, reach, look, colours, events }) {
    if (now - this.#paintedAt < REPAINT_MS) return;
    this.#paintedAt = now;
    const { canvas, context, scale } = fitted(this.#canvas);
    const painted = paintHeat(store, rows, reach.fromMs, reach.toMs, canvas.width, look, GROUND_WORD);
    const edges = rows.map((_, index) => Math.round((index * canvas.height) / rows.length));
    const places = edges.map((y, index) => ({ y, height: (edges[index + 1] ?? canvas.height) - y }));
    drawRows(context, painted, 0, places, scale);
    this.#marks(context, canvas, scale, reach, events);
    const below = fitted(this.#axis);
    below.context.clearRect(0, 0, below.canvas.width, below.canvas.height);
    paintAxis(below.context, { x: 0, y: 0, width: below.canvas.width, height: AXIS * scale }, reach, colours, scale);
  }

  /** Lines where links failed or came back, ports disappeared, or captures were taken. */
  #marks(context, canvas, scale, reach, events) {
    for (const { time_ms: ms, kind } of events) {
      const colour = SIGNS[sortOf(kind)];
      if (!colour || ms < reach.fromMs) continue;
      const x = Math.round(((ms - reach.fromMs) / (reach.toMs - reach.fromMs)) * canvas.width);
      context.fillStyle = "#000000";
      context.fillRect(x - scale, 0, 4 * scale, canvas.height);
      context.fillStyle = colour;
      context.fillRect(x, 0, 2 * scale, canvas.height);
    }
  }

  /** Show where the view is in the history. */
  place(span, reach, held) {
    const width = this.#slider.clientWidth;
    const per = width / (reach.toMs - reach.fromMs);
    const wide = Math.min(width, Math.max(6, (span.toMs - span.fromMs) * per));
    const left = Math.max(0, Math.min(width - wide, (span.fromMs - reach.fromMs) * per));
    this.#thumb.style.width = `${wide}px`;
    this.#thumb.style.transform = `translateX(${left}px)`;
    const part = Math.round((100 * (span.toMs - reach.fromMs)) / (reach.toMs - reach.fromMs));
    const words = held ? `${clock(span.fromMs)} to ${clock(span.toMs)}` : "the newest samples";
    if (this.#slider.getAttribute("aria-valuetext") === words) return;
    this.#slider.setAttribute("aria-valuenow", Math.min(100, Math.max(0, part)));
    this.#slider.setAttribute("aria-valuetext", words);
  }
}
