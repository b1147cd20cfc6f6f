// The state of the view, kept in the URL, so that a link reproduces it.

import { CHARTS } from "./chart.js";
import { MAPS } from "./colours.js";

const SHORTEST_SAMPLES = 20;
const CHOICES = {
  direction: ["transmit", "receive", "both"],
  unit: ["ratio", "bytes", "bits"],
  values: ["rates", "differences"],
  chart: CHARTS,
  map: MAPS,
  theme: ["auto", "dark", "light"],
};
const DEFAULTS = {
  direction: "both",
  unit: "ratio",
  values: "rates",
  chart: CHARTS[0],
  map: "viridis",
  theme: "auto",
  window: "",
  spanMs: 0,
  endMs: 0,
  chosen: null,
  select: null, // {fromMs, toMs}
};

export class View {
  #listeners = [];
  #choices;
  #defaults;
  #list;

  /** `choices` are further parts of the URL with their values, the default first; `list` is the part of what is `chosen`. */
  constructor(choices = {}, list = "ports") {
    const first = Object.entries(choices).map(([name, values]) => [name, values[0]]);
    [this.#choices, this.#list] = [{ ...CHOICES, ...choices }, list];
    this.#defaults = { ...DEFAULTS, ...Object.fromEntries(first) };
    Object.assign(this, this.#defaults);
    this.limits = { shortestMs: 200, longestMs: 300_000 };
    this.read();
  }

  /** Whether the view is held at a fixed end; otherwise it follows the newest sample. */
  get held() {
    return this.endMs > 0;
  }

  listen(listener) {
    this.#listeners.push(listener);
  }

  change(patch) {
    Object.assign(this, patch);
    if (this.spanMs) this.spanMs = Math.min(this.limits.longestMs, Math.max(this.limits.shortestMs, this.spanMs));
    // whole milliseconds, so that the URL is exact
    Object.assign(this, { endMs: Math.round(this.endMs), spanMs: Math.round(this.spanMs) });
    history.replaceState(null, "", this.address());
    for (const listener of this.#listeners) listener(patch);
  }

  bound(intervalMs, historyMs) {
    this.limits = {
      shortestMs: SHORTEST_SAMPLES * intervalMs,
      longestMs: Math.max(historyMs, SHORTEST_SAMPLES * intervalMs),
    };
  }

  /** The URL of this view. */
  address() {
    const query = this.#query([...Object.keys(this.#choices), "window"]);
    if (!this.held && this.spanMs) query.set("span", this.spanMs);
    if (this.chosen) query.set(this.#list, this.chosen.join(","));
    if (this.select) query.set("select", `${this.select.fromMs}-${this.select.toMs}`);
    return fragment(query) || location.pathname;
  }

  /** The fragment of a page of another kind for the same time and look; `ports` is what it shows, by default everything. */
  elsewhere(ports = "") {
    const query = this.#query(Object.keys(CHOICES));
    if (ports) query.set("ports", ports);
    return fragment(query);
  }

  #query(names) {
    const query = new URLSearchParams();
    if (this.held) {
      query.set("from", this.endMs - this.spanMs);
      query.set("to", this.endMs);
    }
    for (const name of names) {
      if (this[name] !== this.#defaults[name]) query.set(name, this[name]);
    }
    return query;
  }

  /** Read the view from the URL; invalid parts keep their defaults. */
  read() {
    Object.assign(this, this.#defaults);
    const query = new URLSearchParams(location.hash.slice(1));
    for (const [name, values] of Object.entries(this.#choices)) {
      if (values.includes(query.get(name))) this[name] = query.get(name);
    }
    this.window = query.get("window") ?? "";
    const [from, to, span] = ["from", "to", "span"].map((name) => Number(query.get(name)));
    if (from > 0 && to > from) Object.assign(this, { endMs: to, spanMs: to - from });
    else if (span > 0) this.spanMs = span;
    if (query.get(this.#list)) this.chosen = query.get(this.#list).split(",");
    const [begin, end] = (query.get("select") ?? "").split("-").map(Number);
    if (begin > 0 && end > begin) this.select = { fromMs: begin, toMs: end };
  }
}

function fragment(query) {
  const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  return text ? `#${text}` : "";
}
