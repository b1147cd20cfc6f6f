// Signs of what limited each rail: a strip below its row, with a legend and sentences below the picture.

import { element, put } from "./elements.js";

const EVERY_MS = 2_000;
const HELD_MS = 300;
const SECOND_MS = 1_000;
/** Colours of the letters of a strip; what is unknown is grey, and at its usual peak, where nothing is wrong, green. */
const COLOURS = {
  s: "#6fb7ff",
  p: "#ffb020",
  r: "#c792ea",
  l: "#ff5d5d",
  k: "#ff9ad5",
  "=": "#3f8f63",
  "-": "#8d97a3",
  "?": "#59636e",
};
const byId = (id) => document.getElementById(id);

export class Limits {
  #page;
  #answer = null;
  #asked = "";
  #askedAt = -Infinity;
  #busy = false;

  constructor(page) {
    this.#page = page;
  }

  /** Height of a strip in CSS pixels; none without any rail that has signs. */
  get height() {
    return this.#answer?.ports.length ? 5 : 0;
  }

  /** Ask for the signs of a span, unless they are there: at most every two seconds, or when a held view has moved. */
  ask(span, nowMs) {
    const { view } = this.#page;
    const fromMs = Math.floor(span.fromMs / SECOND_MS) * SECOND_MS;
    const toMs = Math.ceil(span.toMs / SECOND_MS) * SECOND_MS;
    const wanted = view.held ? { from: fromMs, to: toMs } : { last: `${Math.max(1, (toMs - fromMs) / SECOND_MS)}s` };
    const key = JSON.stringify(view.held ? wanted : "live");
    if (this.#busy || (view.held && key === this.#asked)) return;
    if (nowMs - this.#askedAt < (key === this.#asked ? EVERY_MS : HELD_MS)) return;
    [this.#askedAt, this.#asked] = [nowMs, key];
    this.#fetch(wanted);
  }

  async #fetch(wanted) {
    this.#busy = true;
    try {
      const answer = await fetch(this.#page.address("limits", wanted), { cache: "no-store" });
      // a node of another version has none, and a span before the history has none
      this.#answer = answer.ok ? await answer.json() : null;
      this.#explain();
      this.#page.draw();
    } catch {
      // the next request may succeed
    } finally {
      this.#busy = false;
    }
  }

  /** Paint the strip of each port at its place, `{y, height}` in pixels of the canvas; `names` are those of the ports. */
  paint(context, names, places, span, width) {
    if (!this.#answer) return;
    const { start_ms: startMs, bin_ms: binMs } = this.#answer;
    const at = (ms) => ((ms - span.fromMs) / (span.toMs - span.fromMs)) * width;
    const strips = new Map(this.#answer.ports.map((port) => [port.port, port.strip]));
    names.forEach((name, row) => {
      for (const { letter, from, to } of runs(strips.get(name) ?? "")) {
        const [left, right] = [Math.max(0, at(startMs + from * binMs)), Math.min(width, at(startMs + to * binMs))];
        if (right <= left || !COLOURS[letter]) continue;
        context.fillStyle = COLOURS[letter];
        context.fillRect(left, places[row].y, right - left, places[row].height);
      }
    });
  }

  /** The legend, the sentences, and what the signs cannot tell. */
  #explain() {
    const found = this.#answer?.ports.length ? this.#answer : null;
    byId("limits").hidden = !found;
    if (!found) return;
    const shown = new Set(found.ports.flatMap((port) => [...port.strip]));
    const keys = byId("limit-keys");
    keys.replaceChildren();
    for (const [letter, meaning] of Object.entries(found.legend)) {
      if (!COLOURS[letter] || !shown.has(letter)) continue;
      const item = element("li", "", keys);
      element("span", "swatch", item).style.background = COLOURS[letter];
      item.append(meaning);
    }
    const words = byId("limit-words");
    words.replaceChildren();
    for (const { text } of found.limits) put(element("li", "", words), `${text}.`);
    for (const text of remarks(found.ports)) put(element("li", "soft", words), `${text}.`);
    put(element("li", "soft", words), found.cannot_know);
  }
}

/** The remarks of ports, each once, with its ports. */
function remarks(ports) {
  const found = new Map();
  for (const port of ports) for (const text of port.remarks) found.set(text, [...(found.get(text) ?? []), port.port]);
  return [...found].map(([text, names]) => `${names.length > 3 ? `${names.length} rails` : names.join(", ")}: ${text}`);
}

/** The runs of equal letters of a strip. */
function runs(strip) {
  const found = [];
  for (let from = 0; from < strip.length; ) {
    let to = from + 1;
    while (to < strip.length && strip[to] === strip[from]) to += 1;
    found.push({ letter: strip[from], from, to });
    from = to;
  }
  return found;
}
