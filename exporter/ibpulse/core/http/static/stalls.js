// A stall of a job in words and on its page: which nodes are silent, for how long, and which stopped first.

import { element, put } from "./elements.js";
import { duration } from "./format.js";

const MOST_NAMES = 3;
// shown before the first node stopped and after the last one did
const AROUND_MS = 2_000;
const LONGEST_MS = 60_000;

/** A time that goes on: 8 s, 4 min 18 s, 1 h 4 min, 3 d 2 h. */
export function elapsed(ms) {
  const seconds = Math.floor(ms / 1000);
  const units = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  if (seconds < 60) return `${seconds} s`;
  const [[large, size], [small, part]] = units.slice(first, first + 2);
  const rest = Math.floor((seconds % size) / part);
  return `${Math.floor(seconds / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

/** Some names, the first few of many. */
export function namesWords(names, word = "and") {
  const rest = names.length - MOST_NAMES;
  if (rest > 0) return `${names.slice(0, MOST_NAMES).join(", ")} ${word} ${rest} more`;
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} ${word} ${names.at(-1)}` : names.join("");
}

/** Which node stopped first: `moe first, 1.92 s before idle-rail`; empty for a single silent node. */
export function firstWords({ rows, first, before, gap_ms: gap }) {
  if (!first.length) return rows.length > 1 ? "order not known" : "";
  return `${namesWords(first, "or")} first${before ? `, ${duration(gap)} before ${before}` : ""}`;
}

/** A stall in a few words, for a table: `silent for 4 min 18 s, moe first`. */
export function stallWords(stall) {
  const who = stall.whole ? "" : `${namesWords(stall.rows)} `;
  return `${who}silent for ${elapsed(stall.silent_ms)}${firstWords(stall) ? `, ${firstWords(stall)}` : ""}`;
}

/** The span in which the nodes fell silent, in ms. */
export function momentOf({ since_ms: since, gap_ms: gap }) {
  return [since - Math.min(gap ?? 0, LONGEST_MS) - AROUND_MS, since + AROUND_MS];
}

/** The line above the cards of a job that is silent, with the way to the moment. */
export class StallLine {
  constructor(page, before) {
    this.page = page;
    this.line = element("div", "stall", before.parentElement);
    before.after(this.line);
    this.line.hidden = true;
    const words = element("p", "", this.line);
    this.silent = element("b", "", words);
    words.append(" ");
    this.first = element("span", "", words);
    this.button = element("button", "", this.line);
    this.button.textContent = "Show the moment";
    this.button.addEventListener("click", () => page.controls.showSpan(...momentOf(this.stall)));
  }

  show({ stall, nodes }) {
    this.stall = stall;
    this.line.hidden = !stall;
    if (!stall) return;
    const { rows, first, direction, whole } = stall;
    const some = rows.length < nodes ? `${rows.length} of ${nodes} nodes` : nodes > 1 ? `All ${nodes} nodes` : "The node";
    put(this.silent, `${some} silent for ${elapsed(stall.silent_ms)}.`);
    const did = direction === "receive" ? "receiving" : "sending";
    const order = first.length
      ? `${namesWords(first, "or")} stopped ${did} first${stall.before ? `, ${duration(stall.gap_ms)} before ${stall.before}` : ""}.`
      : rows.length > 1 ? "The order is not known." : "";
    put(this.first, [order, whole ? "" : `Silent: ${namesWords(rows)}.`].filter(Boolean).join(" "));
    this.first.title = first.length ? "" : "Nodes that stopped closer together than the clocks and samples tell are in no order, and none is known with a node that does not answer or whose clock is not known.";
    const gone = momentOf(stall)[0] < this.page.reach.fromMs;
    this.button.disabled = gone;
    this.button.title = gone ? `The samples of that moment are older than the history of ${duration(this.page.store.layout.history_ms)}.` : "Hold the view where the nodes fell silent";
  }
}
