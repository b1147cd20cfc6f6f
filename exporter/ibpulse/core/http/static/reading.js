// The sample under the pointer, as numbers. The reading stays in place while the samples move.

import { element } from "./elements.js";
import { clock, duration, percent, rate } from "./format.js";
import { placeRows } from "./picture.js";
import { jobWords, jobsAt, label, since, stateAt } from "./states.js";

/** Why there is no sample, as far as that is known. */
function missing(word, before) {
  if (before) return "no data: before the history";
  return word ? `no data: ${word}` : "no data: the sample or its read was missed";
}

export class Reading {
  #box;
  #cross;
  #place = null; // {x: fraction of the width, row}
  /** More about a port, as text. */
  remark = () => "";

  constructor(box, cross) {
    this.#box = box;
    this.#cross = cross;
  }

  get place() {
    return this.#place;
  }

  /** Point at a fraction of the width and a row of the picture. */
  point(x, row) {
    this.#place = { x: Math.min(0.9999, Math.max(0, x)), row };
  }

  /** Point at the position of a pointer. */
  at(offsetX, offsetY, size, rows) {
    const places = placeRows(rows, 0, size.height, 1);
    let row = places.findIndex((place) => offsetY < place.y + place.height + 2);
    if (row < 0) row = rows.length - 1;
    this.point(offsetX / size.width, row);
  }

  leave() {
    this.#place = null;
    this.#box.hidden = this.#cross.hidden = true;
  }

  /** The time span of the bin under the pointer. */
  binOf(store, span, width) {
    const perColumn = (span.toMs - span.fromMs) / width;
    const widthMs = store.widthFor(perColumn);
    const startMs = Math.floor((span.fromMs + this.#place.x * (span.toMs - span.fromMs)) / widthMs) * widthMs;
    return { startMs, widthMs };
  }

  show(store, rows, span, size, unit) {
    if (!this.#place || !rows.length) return;
    const { startMs, widthMs } = this.binOf(store, span, size.width);
    const { port } = rows[Math.min(rows.length - 1, this.#place.row)];
    const first = store.layout.ports.findIndex((each) => each.port === port.port) * 2;
    const rates = [0, 1].map((way) => store.highest(first + way, widthMs, startMs, startMs + widthMs));
    const merged = [0, 1].some((way) => store.merged(first + way, widthMs, startMs, startMs + widthMs));
    this.#write(port, startMs, widthMs, store, rates, merged, unit);
    this.#move(((startMs + widthMs / 2 - span.fromMs) / (span.toMs - span.fromMs)) * size.width, size);
  }

  #write(port, startMs, widthMs, { intervalMs, oldestMs }, rates, merged, unit) {
    this.#box.replaceChildren();
    const head = element("div", "", this.#box);
    element("b", "", head).textContent = port.port;
    const state = stateAt(port, startMs + widthMs - 1);
    const word = label(state);
    head.append(` ${clock(startMs, intervalMs < 10 || widthMs < 10 ? 3 : 2)} `);
    const highest = widthMs > intervalMs ? `highest ${duration(intervalMs)} sample in ${duration(widthMs)}` : "";
    element("span", "soft", head).textContent = highest || `${duration(widthMs)} sample`;
    const jobs = jobsAt(port, startMs + widthMs - 1);
    if (jobs.length) element("div", "soft job", this.#box).textContent = `job ${jobs.map(jobWords).join(", ")}`;
    const more = this.remark(port);
    if (more) element("div", "soft", this.#box).textContent = more;
    const remark = element("div", "", this.#box);
    if (rates.every((rate) => rate === undefined || Number.isNaN(rate))) {
      remark.textContent = rates.includes(undefined) ? "not loaded yet" : missing(word, startMs < oldestMs);
      return;
    }
    const mean = merged ? "mean of merged samples, one of them above the line rate" : "";
    remark.textContent = [word ? `link ${word} ${since(state)}` : "", mean].filter(Boolean).join("; ");
    const list = element("dl", "", this.#box);
    ["transmit", "receive"].forEach((way, index) => {
      element("dt", "", list).textContent = way;
      element("dd", "", list).textContent = rate(rates[index], unit);
      element("dd", "", list).textContent = state.rate ? percent(rates[index] / state.rate) : "–";
    });
  }

  #move(x, size) {
    this.#box.hidden = this.#cross.hidden = false;
    this.#cross.style.transform = `translateX(${x}px)`;
    const { offsetWidth, offsetHeight } = this.#box;
    const left = x + 14 + offsetWidth < size.width ? x + 14 : Math.max(0, x - 14 - offsetWidth);
    const middle = size.height * ((this.#place.row + 0.5) / Math.max(1, size.rows));
    const top = Math.min(Math.max(0, middle - offsetHeight - 10), size.height - offsetHeight);
    this.#box.style.transform = `translate(${left}px, ${Math.max(0, top)}px)`;
  }
}
