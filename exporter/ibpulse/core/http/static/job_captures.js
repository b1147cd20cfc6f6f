// Captures of a job: the button that takes one on all nodes, what became of it, and the list of all of them.

import { apiAddress } from "./address.js";
import { addCapture, addTrace, askCaptures, fillTable } from "./capture_requests.js";
import { element } from "./elements.js";
import { UNKNOWN, clock, fullTime, megabytes } from "./format.js";

// a held view is saved as it is, so nothing has to be waited for
const HELD_AFTER_MS = 1_000;
// the newest samples on the page are older than now
const MARGIN_MS = 3_000;
// a file is written within seconds after its span has passed
const ASK_MS = 2_000;
const PATIENCE_MS = 30_000;
const LONGEST_MS = 600_000;
const MOST_NAMES = 8;
const HEADS = ["Time", "Reason", "Nodes", "Size", "Files"];
const byId = (id) => document.getElementById(id);
const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;

export class JobCaptures {
  #page;
  #said = element("div", "message taken", byId("message").parentElement);
  #words;
  #links;
  #details;
  #list;
  #busy = false;
  #current = "";

  constructor(page) {
    this.#page = page;
    byId("message").after(this.#said);
    this.#said.hidden = true;
    this.#words = element("p", "", this.#said);
    this.#words.setAttribute("role", "status");
    this.#links = element("p", "", this.#said);
    const close = element("button", "close", this.#said);
    Object.assign(close, { textContent: "×", title: "Close" });
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => (this.#said.hidden = true));
    this.#details = element("details", "", document.querySelector(".more"));
    element("summary", "", this.#details).textContent = "Captures";
    this.#list = element("div", "", this.#details);
    this.#details.addEventListener("toggle", () => this.#show());
    // only those who may capture have the button
    byId("capture")?.addEventListener("click", () => this.#take());
  }

  /** Time before now that reaches to the begin of a held view, as far as the nodes have it; 0 for the usual time. */
  get #heldMs() {
    const page = this.#page;
    if (!page.view.held || !page.ready) return 0;
    const most = page.store.layout.history_ms - HELD_AFTER_MS - MARGIN_MS;
    return Math.ceil(Math.min(page.reach.toMs - page.span.fromMs + MARGIN_MS, most));
  }

  async #take() {
    if (this.#busy) return;
    this.#busy = true;
    const heldMs = this.#heldMs;
    this.#say("Asking all nodes for a capture.");
    const span = heldMs ? { before: `${heldMs}ms`, after: `${HELD_AFTER_MS}ms` } : {};
    const body = JSON.stringify({ reason: "job page", ...span });
    const headers = { "Content-Type": "application/json" };
    const taken = await askCaptures("captures", { method: "POST", headers, body });
    this.#busy = false;
    if (taken.problem) return this.#say(`No capture was taken. ${taken.problem}`, true);
    const at = clock(taken.trigger_ms);
    const what = heldMs ? `${clock(taken.trigger_ms - heldMs)} to ${at}` : `the time around ${at}`;
    // by the clocks of the nodes
    const waits = taken.nodes.map((each) => each.ready_ms - each.trigger_ms);
    await this.#follow(taken, what, performance.now() + Math.min(LONGEST_MS, Math.max(...waits)));
  }

  /** Say how far a capture is, until all files are there. */
  async #follow({ id, nodes, missing }, what, readyAt) {
    this.#current = id;
    const without = missingWords(missing);
    const say = (words, group) => {
      if (this.#current === id) this.#say(words, missing.length > 0, group);
    };
    say(`Capturing ${what} on ${count(nodes.length, "node")}.${without}`);
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, readyAt - performance.now()) + ASK_MS));
    for (;;) {
      const group = (await askCaptures("captures")).captures?.find((each) => each.id === id);
      const written = group?.nodes.filter((each) => each.size_bytes !== null).length ?? 0;
      const some = written ? group : null;
      if (written === nodes.length) {
        say(`Captured ${what} on ${count(written, "node")}.${without}`, group);
        break;
      }
      if (performance.now() - readyAt > PATIENCE_MS) {
        say(`Captured ${what}: ${written} of ${count(nodes.length, "file")} written so far.${without}`, some);
        break;
      }
      say(`Writing ${what}: ${written} of ${count(nodes.length, "file")}.${without}`);
      await new Promise((resolve) => setTimeout(resolve, ASK_MS));
    }
    if (this.#details.open) await this.#show();
  }

  #say(words, bad = false, group = null) {
    this.#said.hidden = false;
    this.#said.dataset.tone = bad ? "bad" : "";
    this.#words.textContent = words;
    this.#links.replaceChildren();
    if (group) download(this.#links, group, `Download all files (${megabytes(group.size_bytes)})`);
  }

  /** Fill the list of all captures of the job. */
  async #show() {
    if (!this.#details.open) return;
    const found = await askCaptures("captures");
    this.#list.replaceChildren();
    const { captures = [], single = [], missing = [] } = found;
    const rows = [...captures.map(groupRow), ...single.map(singleRow)].sort((a, b) => b.ms - a.ms);
    if (rows.length) fillTable(this.#list, "Captures", HEADS, rows.map(cellsOf));
    const none = found.problem ?? (rows.length ? "" : "No node has a capture of this job.");
    const words = `${none}${missingWords(missing, "No answer from")}`.trim();
    if (words) element("p", "soft", this.#list).textContent = words;
  }
}

/** A sentence on nodes and their reasons, with a space in front; empty without any. */
function missingWords(missing, verb = "Not captured:") {
  if (!missing.length) return "";
  const named = missing.slice(0, MOST_NAMES).map(({ node, reason }) => `${node} (${reason})`);
  const rest = missing.length - named.length;
  return ` ${verb} ${named.join(", ")}${rest > 0 ? ` and ${rest} more` : ""}.`;
}

function groupRow(group) {
  const written = group.nodes.filter((each) => each.size_bytes !== null).length;
  const nodes = group.nodes.map((each) => each.node).join(", ");
  return {
    ms: group.trigger_ms,
    reason: group.reason,
    nodes: count(group.nodes.length, "node"),
    title: nodes,
    size: written ? megabytes(group.size_bytes) : "being written",
    link: (cell) => written && download(cell, group, "Download all"),
  };
}

function singleRow({ node, name, trigger_ms: ms, size_bytes: size, reason }) {
  return {
    ms,
    reason,
    nodes: node,
    size: size === null ? "being written" : megabytes(size),
    link: (cell) => {
      if (size === null) return;
      addCapture(cell, name, "Download", node);
      addTrace(cell, name, node);
    },
  };
}

function download(holder, { id }, words) {
  const link = element("a", "", holder);
  // the URL in the answer knows no path prefix
  Object.assign(link, { href: apiAddress(`captures/${id}`), download: `${id}.tar`, textContent: words });
}

function cellsOf({ ms, reason, nodes, title, size, link }) {
  const named = (cell) => {
    cell.textContent = nodes;
    cell.title = title ?? "";
  };
  return [fullTime(ms), reason || UNKNOWN, named, size, link];
}
