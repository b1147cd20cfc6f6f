// The panel of a selected span: how long it is, what was sent in it, and what can be done with it.

import { element, put } from "./elements.js";
import { UNKNOWN, bytesWords, clock, decimal, duration, fullTime, percent, rate } from "./format.js";
import { fetchSpan, spanStatistics } from "./span_statistics.js";

const PAUSE_MS = 250;
const byId = (id) => document.getElementById(id);

export class SpanPanel {
  #page;
  #root = byId("selected");
  #head;
  #facts;
  #table;
  #key = "";
  #due = 0;
  #found = null;

  constructor(page) {
    this.#page = page;
    const top = element("div", "selected-head", this.#root);
    this.#head = element("p", "", top);
    this.#head.setAttribute("role", "status");
    const buttons = element("div", "selected-tools", top);
    const add = (words, title, act) => {
      const button = element("button", "", buttons);
      Object.assign(button, { textContent: words, title });
      button.addEventListener("click", act);
    };
    add("Zoom", "Show only the selected span (z)", () => page.controls.zoomIn());
    add("One step", "Select one step period from the begin of the selection", () => this.#step());
    add("Save …", "Save or copy the selected span", () => {
      byId("save-menu").open = true;
      byId("save-menu").querySelector("summary").focus();
    });
    add("Clear", "Clear the selection (x)", () => page.selected.clear());
    this.#facts = element("dl", "selected-facts", this.#root);
    const details = element("details", "", this.#root);
    element("summary", "", details).textContent = "Each row in this span";
    const wide = element("div", "wide", details);
    Object.assign(wide, { tabIndex: 0, role: "region", ariaLabel: "Each row in the selected span" });
    this.#table = element("table", "", wide);
  }

  /** Show a span, or nothing for null. Its samples are fetched once it stops changing. */
  show(span) {
    this.#root.hidden = !span;
    const { view, ready } = this.#page;
    const key = span && ready ? JSON.stringify([span, view.unit, this.#page.shown.map((port) => port.port)]) : "";
    if (key === this.#key) return;
    this.#key = key;
    clearTimeout(this.#due);
    if (!key) return;
    const length = span.toMs - span.fromMs;
    const often = length >= 1000 ? "" : `, ${decimal(1000 / length, 1)} per second`;
    put(this.#head, `Selected ${duration(length)}${often}${this.#steps(length)}: ${clock(span.fromMs, 2)} to ${fullTime(span.toMs)}`);
    this.#due = setTimeout(() => this.#ask(span, key), PAUSE_MS);
  }

  get #stepMs() {
    return (this.#page.second?.node?.step_period_seconds ?? 0) * 1000;
  }

  #steps(length) {
    const each = this.#stepMs;
    return each ? `, ${decimal(length / each, 2)} steps of ${duration(each)}` : "";
  }

  #step() {
    const { selected: selection } = this.#page;
    if (!this.#stepMs) return this.#page.say("There is no clear step period to select.");
    const { fromMs } = selection.span;
    return selection.set(fromMs, fromMs + this.#stepMs);
  }

  async #ask(span, key) {
    const [found, highest] = [await fetchSpan(this.#page, span, { statistic: "mean" }), await fetchSpan(this.#page, span)];
    if (this.#key !== key) return;
    this.#facts.replaceChildren();
    this.#table.replaceChildren();
    const problem = found.problem ?? highest.problem;
    // samples that became complete between the two answers
    const same = found.values?.length === highest.values?.length;
    if (problem || !found.about.points || !same) {
      this.#fact("Not available", problem ?? "The samples of this span are not complete yet; select it again.");
      return;
    }
    this.#found = spanStatistics(found.about, found.values, highest.values);
    this.#write(found.about);
  }

  #fact(name, words) {
    const pair = element("div", "", this.#facts);
    element("dt", "", pair).textContent = name;
    element("dd", "", pair).textContent = words;
  }

  #write(about) {
    const { unit } = this.#page.view;
    const found = this.#found;
    for (const way of ["transmit", "receive"]) {
      if (Number.isNaN(found[way].mean) && !found[way].bytes) continue;
      this.#fact(way === "transmit" ? "Transmit" : "Receive", `mean ${rate(found[way].mean, unit)}, ${bytesWords(found[way].bytes)}`);
    }
    const width = duration(about.resolution_ms);
    this.#fact(found.single ? "Highest sample" : `Highest mean of ${width}`, rate(found.peak, unit));
    this.#fact("Missing", found.missing ? `${percent(found.missing)} of ${found.all} values; bytes count the others` : "nothing");
    this.#rows(unit);
  }

  /** A row of the table for each port: mean and highest in both directions, and the difference from the median. */
  #rows(unit) {
    const { series } = this.#found;
    const head = element("tr", "", element("thead", "", this.#table));
    const titles = ["Row", "Transmit, mean", "± median", "highest", "Receive, mean", "± median", "highest", "Missing"];
    for (const title of titles) element("th", "", head).textContent = title;
    const middle = Object.fromEntries(["transmit", "receive"].map((way) => [way, medianMean(series, way)]));
    const body = element("tbody", "", this.#table);
    for (const port of [...new Set(series.map((each) => each.port))]) {
      const row = element("tr", "", body);
      element("th", "", row).textContent = port;
      const own = series.filter((each) => each.port === port);
      for (const way of ["transmit", "receive"]) {
        const one = own.find((each) => each.way === way);
        const by = one ? one.mean - middle[way] : NaN;
        const sign = by < 0 ? "−" : "+";
        const cells = [rate(one?.mean, unit), Number.isNaN(by) ? UNKNOWN : `${sign}${rate(Math.abs(by), unit)}`, rate(one?.peak, unit)];
        for (const text of cells) element("td", "", row).textContent = text;
      }
      const lost = own.reduce((sum, each) => sum + each.missing, 0);
      element("td", "", row).textContent = lost ? percent(lost / own.reduce((sum, each) => sum + each.missing + each.count, 0)) : "";
    }
  }
}

function medianMean(series, way) {
  const means = series.filter((each) => each.way === way && !Number.isNaN(each.mean)).map((each) => each.mean);
  means.sort((a, b) => a - b);
  const at = means.length / 2;
  if (!means.length) return NaN;
  return means.length % 2 ? means[Math.floor(at)] : (means[at - 1] + means[at]) / 2;
}
