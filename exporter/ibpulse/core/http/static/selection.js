// A selected span of time: the band over the picture, its ruler, and its panel, which is loaded when it is first needed.

import { put } from "./elements.js";
import { clock, duration } from "./format.js";

const LEAST_PIXELS = 3;

export class Selection {
  #page;
  #band;
  #words;
  #panel = null;
  #anchorMs = null;

  constructor(page, band) {
    this.#page = page;
    this.#band = band;
    this.#words = band.firstElementChild;
  }

  /** The selected span, null without one. */
  get span() {
    return this.#page.view.select;
  }

  /** The selected span, else the visible one. */
  get chosen() {
    return this.span ?? this.#page.span;
  }

  #timeOf(part) {
    const { fromMs, toMs } = this.#page.span;
    return fromMs + Math.min(1, Math.max(0, part)) * (toMs - fromMs);
  }

  /** Begin to select at a fraction of the picture's width. */
  begin(part) {
    this.#anchorMs = this.#timeOf(part);
  }

  /** Select from where it began to a fraction of the width. */
  extend(part) {
    if (this.#anchorMs === null) return;
    this.set(this.#anchorMs, this.#timeOf(part));
  }

  /** The pointer is up: what is narrower than a few pixels was a click, which selects nothing. */
  end() {
    this.#anchorMs = null;
    const { span, size } = this.#page;
    const least = ((span.toMs - span.fromMs) / size.width) * LEAST_PIXELS;
    if (this.span && this.span.toMs - this.span.fromMs < least) this.clear();
  }

  /** Select a span; its ends are at the borders of samples. */
  set(aMs, bMs) {
    const each = this.#page.store.intervalMs;
    const snap = (ms) => Math.round(ms / each) * each;
    const [fromMs, toMs] = [snap(Math.min(aMs, bMs)), snap(Math.max(aMs, bMs))];
    this.#page.view.change({ select: { fromMs, toMs: Math.max(toMs, fromMs + each) } });
  }

  /** Move one end to a time; without a selection, the other end is that of the view. */
  setEnd(which, ms) {
    const { fromMs, toMs } = this.chosen;
    if (which === "begin") this.set(ms, ms < toMs ? toMs : this.#page.span.toMs);
    else this.set(ms > fromMs ? fromMs : this.#page.span.fromMs, ms);
  }

  clear() {
    if (this.span) this.#page.view.change({ select: null });
  }

  /** Place the band over the picture, and show the panel. */
  place(span, width) {
    const chosen = this.span;
    this.#band.hidden = !chosen;
    this.#follow();
    if (!chosen) return;
    const perPixel = (span.toMs - span.fromMs) / width;
    const [left, right] = [chosen.fromMs, chosen.toMs].map((ms) => Math.max(-2, Math.min(width + 2, (ms - span.fromMs) / perPixel)));
    this.#band.style.transform = `translateX(${left}px)`;
    this.#band.style.width = `${Math.max(1, right - left)}px`;
    put(this.#words, duration(chosen.toMs - chosen.fromMs));
    this.#band.title = `${clock(chosen.fromMs, 3)} to ${clock(chosen.toMs, 3)}`;
  }

  async #follow() {
    if (!this.span) return this.#panel?.show(null);
    // one import for all frames until it is here
    this.loading ??= import("./span_panel.js").then(({ SpanPanel }) => (this.#panel = new SpanPanel(this.#page)));
    await this.loading;
    this.#panel.show(this.span);
  }
}
