// The picture: its time span, and repainting it after changes.

import { apiAddress } from "./address.js";
import { Chart } from "./chart.js";
import { describeView } from "./describe.js";
import { Edge } from "./edge.js";
import { fitted, put } from "./elements.js";
import { History } from "./history.js";
import { showJobs } from "./jobs_line.js";
import { Events, Marks } from "./marks.js";
import { Overview } from "./overview.js";
import { paintScale, palette, pictureOf } from "./page_pictures.js";
import { columnSentence, paintAxis, paintRows, plannedRows } from "./picture.js";
import { Rails, shownPorts } from "./rails.js";
import { Reading } from "./reading.js";
import { Selection } from "./selection.js";
import { findDowns, prepare, railJobs } from "./states.js";
import { Store } from "./store.js";

const FRAME_MS = 33;
const CHART_MS = 250;
const MOMENT_MS = 500;
const LEAST_REACH_MS = 1_000;

const byId = (id) => document.getElementById(id);

export class Page {
  constructor(view, rails = new Rails(byId("names"), byId("bars"))) {
    this.view = view;
    this.store = new Store();
    this.store.fine = view.held;
    this.history = new History(
      this.store,
      (span) => this.address("window", span),
      () => this.draw({ overview: true }),
    );
    this.edge = new Edge();
    this.rails = rails;
    this.reading = new Reading(byId("reading"), byId("cross"));
    this.events = new Events();
    this.marks = new Marks(byId("marks"), byId("event-card"), byId("doubt"));
    this.selected = new Selection(this, byId("band"));
    this.overview = new Overview(byId("overview"), byId("thumb"), byId("history"));
    this.chart = new Chart({ top: byId("chart-top"), words: byId("chart-words") });
    this.second = null;
    this.heldPorts = null;
    this.recent = [];
    this.pending = 0;
    this.chartAt = -Infinity;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    new ResizeObserver(() => this.resized()).observe(byId("stage"));
  }

  get ready() {
    return this.store.layout !== null && this.store.layout.ports.length > 0;
  }

  /** Parameters that choose the series of the stream, of windows and of summaries: [name, value] each. */
  get selection() {
    return [];
  }

  /** Further parameters that leave only what is shown. */
  get shownSelection() {
    return this.shown.map((port) => ["port", port.port]);
  }

  /** The URL of a path of the API for these series. */
  address(path, parameters = {}) {
    const query = new URLSearchParams([...this.selection, ...Object.entries(parameters)]).toString();
    return apiAddress(query ? `${path}?${query}` : path);
  }

  /** The ports that are shown, in their order. */
  get shown() {
    return shownPorts(this.store.layout, this.view.chosen, this.momentMs);
  }

  /** Width and height of the rows in CSS pixels. */
  get size() {
    const canvas = byId("waterfall");
    return { width: canvas.clientWidth, height: canvas.clientHeight - 28, rows: this.rows.length };
  }

  get rows() {
    if (!this.ready) return [];
    return plannedRows(this.store.layout, this.shown, this.view.direction, this.view.unit, this.momentMs);
  }

  /** The span with one column for each of the narrowest bins. */
  get naturalMs() {
    return Math.max(this.view.limits.shortestMs, byId("waterfall").clientWidth * this.store.leastMs);
  }

  /** The span of the live view with one column for each value of a batch. */
  get usualMs() {
    return Math.max(this.view.limits.shortestMs, byId("waterfall").clientWidth * this.store.batchMs);
  }

  get span() {
    const length = this.view.spanMs || Math.min(this.usualMs, this.view.limits.longestMs);
    const toMs = this.view.held ? this.view.endMs : this.edge.at(performance.now());
    return { fromMs: toMs - length, toMs };
  }

  /** The time whose states are shown: the end of a held view, or now. */
  get momentMs() {
    return this.view.held ? this.view.endMs - 1 : Infinity;
  }

  /** The ports of the summary of that time, null if it is not known. */
  get numbers() {
    return this.view.held ? this.heldPorts : (this.second?.ports ?? null);
  }

  /** The entire history: oldest and newest time that can be shown. */
  get reach() {
    const toMs = this.edge.newest(performance.now());
    // a gateway that has heard of no node yet does not know the history
    const fromMs = toMs - Math.max(LEAST_REACH_MS, this.store.layout.history_ms);
    // a history that has just begun is as long as its samples
    return { fromMs: Math.min(toMs - LEAST_REACH_MS, Math.max(fromMs, this.store.oldestMs)), toMs };
  }

  /** Take over a layout; returns whether it has other ports than before. */
  describe(layout) {
    const others = this.store.describe(prepare(layout));
    if (others) this.recent = [];
    findDowns(layout, this.events.list);
    this.view.bound(layout.interval_ms, layout.history_ms);
    byId("waiting").textContent = layout.ports.length
      ? "Waiting for the first samples"
      : this.nothing;
    this.draw({ overview: true });
    return others;
  }

  /** What the page says if there is nothing to show. */
  get nothing() {
    return "No port can be sampled.";
  }

  /** What is said of the picture in addition. */
  get note() {
    return "";
  }

  /** Called when the picture has another size. */
  resized() {
    this.draw({ overview: true });
  }

  /** Called when the numbers of a held view have arrived. */
  learn() {}

  add(batch) {
    if (!this.ready) return;
    this.store.add(batch);
    this.edge.note(this.store.streamedMs, performance.now());
    this.recent.push(batch);
    while (this.recent.at(-1).start_ms - this.recent[0].start_ms > MOMENT_MS) this.recent.shift();
    byId("waiting").hidden = true;
    this.draw();
  }

  /** Mean of the newest samples of a series, NaN without any. */
  moment(series) {
    let [sum, count] = [0, 0];
    for (const batch of this.recent) {
      for (const value of batch.megabytes_per_second[series] ?? []) {
        if (value !== null) [sum, count] = [sum + value, count + 1];
      }
    }
    return count ? (sum / count) * 1e6 : NaN;
  }

  /** Paint on the next frame; `overview` if the history changed as well. */
  draw({ overview = false } = {}) {
    if (overview) {
      this.overview.renew();
      this.chartAt = -Infinity;
    }
    if (this.pending || document.hidden) return;
    this.pending = requestAnimationFrame((now) => {
      this.pending = 0;
      this.paint(now);
    });
  }

  paint(now) {
    if (!this.ready || !this.store.newestMs) return;
    const canvas = byId("waterfall");
    const { context, scale } = fitted(canvas);
    const [span, rows] = [this.span, this.rows];
    const box = { x: 0, y: 0, width: canvas.width, height: canvas.height - 28 * scale };
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.rails.arrange(this.store.layout, rows, this.view.unit);
    this.rails.standing(this.numbers, this.momentMs);
    this.nameJobs();
    const read = paintRows(context, box, this.store, rows, span, { ...this.colouring, strip: this.strip * scale }, scale);
    this.paintSigns(context, box, rows, span, scale);
    const colours = palette();
    paintAxis(context, { ...box, y: box.height + 2 * scale }, span, colours, scale);
    const perColumnMs = Math.max(this.store.leastMs, (span.toMs - span.fromMs) / canvas.width);
    put(byId("column"), columnSentence(this.store.intervalMs, perColumnMs, this.view.direction) + this.note);
    this.showRates(span, canvas.width);
    this.reading.show(this.store, rows, span, this.size, this.view.unit);
    this.marks.place(this.events, span, this.size.width);
    this.selected.place(span, this.size.width);
    if (now - this.chartAt > CHART_MS) this.paintChart(now, read, rows, perColumnMs, colours);
    const { store, reach, colouring: look } = this;
    this.overview.paint(now, { store, rows, reach, look, colours, events: this.events.list });
    this.overview.place(span, reach, this.view.held);
    this.fetch(span, canvas.width);
    if (!this.view.held && !this.calm.matches) setTimeout(() => this.draw(), FRAME_MS - 16);
  }

  /** Height of what is painted below each port, in CSS pixels. */
  get strip() {
    return 0;
  }

  /** Called when there is room below each port. */
  paintSigns() {}

  /** Name the jobs of the rails; below a gateway each leads to its page, at the same time. */
  nameJobs() {
    showJobs(byId("jobs"), railJobs(this.store.layout, this.momentMs), this.view.elsewhere());
  }

  showRates(span, columns) {
    const per = (span.toMs - span.fromMs) / columns;
    const width = this.store.widthFor(per);
    const last = { startMs: Math.floor((span.toMs - 1) / width) * width, widthMs: width };
    const pointed = this.view.held && this.reading.place;
    const bin = pointed ? this.reading.binOf(this.store, span, this.size.width) : last;
    const still = (series) => this.store.highest(series, bin.widthMs, bin.startMs, bin.startMs + bin.widthMs) ?? NaN;
    const peaks = new Map((this.second?.ports ?? []).map((port) => [port.port, port.peak_bytes_per_second]));
    const rate = this.view.held ? still : (series) => this.moment(series);
    const ms = pointed ? bin.startMs + bin.widthMs - 1 : this.momentMs;
    this.rails.show(rate, (port) => (this.view.held ? null : peaks.get(port)), this.view.unit, ms);
  }

  /** Request missing tiles of the view and the overview, from the right edge. */
  fetch(span, columns) {
    const width = this.store.widthFor((span.toMs - span.fromMs) / columns);
    const tiles = this.store.span(width, Math.max(0, span.fromMs), span.toMs).reverse();
    const reach = this.reach;
    const coarse = this.store.widthFor((reach.toMs - reach.fromMs) / this.overview.columns);
    const whole = this.store.span(coarse, reach.fromMs, reach.toMs);
    this.store.findOldest(whole);
    this.history.want([...tiles, ...whole.reverse()], this.view.held ? span.toMs : 0);
  }

  /** The colours of the rows: the map, and whether they show differences between rails. */
  get colouring() {
    return { map: this.view.map, difference: this.view.values === "differences" };
  }

  paintChart(now, read, rows, perColumnMs, colours) {
    this.chartAt = now;
    const { chart: kind, unit } = this.view;
    byId("plot").dataset.chart = kind;
    if (kind !== "off") {
      const several = perColumnMs > this.store.intervalMs * 1.001;
      const chosen = this.reading.place && rows[Math.min(rows.length - 1, this.reading.place.row)]?.port.port;
      this.chart.show(fitted(byId("chart")), read, rows, kind, this.momentMs, { unit, several, colours, chosen });
    }
    put(byId("described"), describeView(this));
  }

  paintScale() {
    paintScale(this);
  }

  /** A picture of a span, as a promise of a PNG. */
  savedPicture(span = this.span) {
    return pictureOf(this, span);
  }
}
