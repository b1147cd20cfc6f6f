// The picture: its time span, and repainting it after changes.

import { SHORT_NAME, apiAddress } from "./address.js";
import { shade } from "./colours.js";
import { Edge } from "./edge.js";
import { fitted, put } from "./elements.js";
import { clock } from "./format.js";
import { drawRows, paintHeat } from "./heat.js";
import { History } from "./history.js";
import { showJobs } from "./jobs_line.js";
import { Events, Marks } from "./marks.js";
import {
  GROUND_WORD,
  columnSentence,
  paintAxis,
  paintLegend,
  paintRows,
  plannedRows,
  savedPicture,
} from "./picture.js";
import { Rails, shownPorts } from "./rails.js";
import { Reading } from "./reading.js";
import { findDowns, prepare, railJobs } from "./states.js";
import { Store } from "./store.js";

const FRAME_MS = 33;
const OVERVIEW_MS = 1_000;
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
    this.second = null;
    this.heldPorts = null;
    this.recent = [];
    this.pending = 0;
    this.overviewAt = -Infinity;
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
    return { fromMs: toMs - Math.max(LEAST_REACH_MS, this.store.layout.history_ms), toMs };
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
    return "No port of this node counts bytes.";
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
    if (overview) this.overviewAt = -Infinity;
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
    paintRows(context, box, this.store, rows, span, this.view.map, scale);
    paintAxis(context, { ...box, y: box.height + 2 * scale }, span, palette(), scale);
    const perColumnMs = Math.max(this.store.leastMs, (span.toMs - span.fromMs) / canvas.width);
    put(byId("column"), columnSentence(this.store.intervalMs, perColumnMs, this.view.direction) + this.note);
    this.showRates(span, canvas.width);
    this.reading.show(this.store, rows, span, this.size);
    this.marks.place(this.events, span, this.size.width);
    if (now - this.overviewAt > OVERVIEW_MS) this.paintOverview(now, rows);
    this.placeThumb(span);
    this.fetch(span, canvas.width);
    if (!this.view.held && !this.calm.matches) setTimeout(() => this.draw(), FRAME_MS - 16);
  }

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
    const coarse = this.store.widthFor((reach.toMs - reach.fromMs) / fitted(byId("history")).canvas.width);
    this.history.want(
      [...tiles, ...this.store.span(coarse, reach.fromMs, reach.toMs).reverse()],
      this.view.held ? span.toMs : 0,
    );
  }

  paintOverview(now, rows) {
    this.overviewAt = now;
    const { canvas, context, scale } = fitted(byId("history"));
    const reach = this.reach;
    const painted = paintHeat(this.store, rows, reach.fromMs, reach.toMs, canvas.width, this.view.map, GROUND_WORD);
    const edges = rows.map((_, index) => Math.round((index * canvas.height) / rows.length));
    const places = edges.map((y, index) => ({ y, height: (edges[index + 1] ?? canvas.height) - y }));
    drawRows(context, painted, 0, places, scale);
  }

  placeThumb(span) {
    const [reach, width] = [this.reach, byId("overview").clientWidth];
    const per = width / (reach.toMs - reach.fromMs);
    const thumb = byId("thumb");
    thumb.style.width = `${Math.max(6, (span.toMs - span.fromMs) * per)}px`;
    thumb.style.transform = `translateX(${Math.max(0, Math.min(width - 6, (span.fromMs - reach.fromMs) * per))}px)`;
    const part = Math.round((100 * (span.toMs - reach.fromMs)) / (reach.toMs - reach.fromMs));
    const words = this.view.held ? `${clock(span.fromMs)} to ${clock(span.toMs)}` : "the newest samples";
    const slider = byId("overview");
    if (slider.getAttribute("aria-valuetext") === words) return;
    slider.setAttribute("aria-valuenow", Math.min(100, Math.max(0, part)));
    slider.setAttribute("aria-valuetext", words);
  }

  paintScale() {
    const { canvas, context, scale } = fitted(byId("scale"));
    context.clearRect(0, 0, canvas.width, canvas.height);
    paintLegend(
      context,
      { x: 0, y: 0, width: canvas.width },
      this.view.map,
      this.rows[0]?.top,
      this.view.unit,
      palette(),
      scale,
    );
    byId("zero").style.background = shade(this.view.map, 0);
  }

  savedPicture() {
    const [span, rows] = [this.span, this.rows];
    const widthMs = this.store.widthFor((span.toMs - span.fromMs) / byId("waterfall").width);
    const sentence = columnSentence(this.store.intervalMs, widthMs, this.view.direction);
    const { map, unit } = this.view;
    const caption = (port) => this.rails.caption(port);
    const look = { colours: palette(), map, unit, top: rows[0]?.top, sentence, widthMs, events: this.events.list, caption };
    const words = { transmit: "transmit", receive: "receive", both: "transmit and receive" };
    const title = ["ibpulse", SHORT_NAME, words[this.view.direction]];
    if (this.store.layout.simulated) title.push("SIMULATED");
    return savedPicture(this.store, rows, span, look, title.join(" · "));
  }
}

/** The theme's colours for canvases. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    ["ink", "soft", "line", "paper"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
  );
}
