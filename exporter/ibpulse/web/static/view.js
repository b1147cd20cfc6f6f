// The state of the view, kept in the URL, so that a link reproduces it.

import { MAPS } from "./colours.js";

const SHORTEST_SAMPLES = 20;
const CHOICES = {
  direction: ["transmit", "receive", "both"],
  unit: ["ratio", "bytes"],
  map: MAPS,
  theme: ["auto", "dark", "light"],
};
const DEFAULTS = {
  direction: "both",
  unit: "ratio",
  map: "viridis",
  theme: "auto",
  window: "",
  spanMs: 0,
  endMs: 0,
  ports: null,
};

export class View {
  #listeners = [];

  constructor() {
    Object.assign(this, DEFAULTS);
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
    const query = new URLSearchParams();
    if (this.held) {
      query.set("from", this.endMs - this.spanMs);
      query.set("to", this.endMs);
    } else if (this.spanMs) {
      query.set("span", this.spanMs);
    }
    for (const name of [...Object.keys(CHOICES), "window"]) {
      if (this[name] !== DEFAULTS[name]) query.set(name, this[name]);
    }
    if (this.ports) query.set("ports", this.ports.join(","));
    const text = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
    return text ? `#${text}` : location.pathname;
  }

  /** Read the view from the URL; invalid parts keep their defaults. */
  read() {
    Object.assign(this, DEFAULTS);
    const query = new URLSearchParams(location.hash.slice(1));
    for (const [name, values] of Object.entries(CHOICES)) {
      if (values.includes(query.get(name))) this[name] = query.get(name);
    }
    this.window = query.get("window") ?? "";
    const [from, to, span] = ["from", "to", "span"].map((name) => Number(query.get(name)));
    if (from > 0 && to > from) Object.assign(this, { endMs: to, spanMs: to - from });
    else if (span > 0) this.spanMs = span;
    if (query.get("ports")) this.ports = query.get("ports").split(",");
  }
}
