// The live page of a job: one row per node, or per rail of chosen nodes.

import { nodeAddress } from "./address.js";
import { put } from "./elements.js";
import { fullTime } from "./format.js";
import { JobCaptures } from "./job_captures.js";
import { JobControls } from "./job_controls.js";
import { JobNumbers } from "./job_cards.js";
import { NodeRows, ORDERS, asOwn, asPorts, clockSentence, clockWords, ordered } from "./job_rows.js";
import { showClocks, showNodes } from "./job_table.js";
import { LivePage } from "./live_page.js";
import { Verdicts } from "./verdicts.js";
import { View } from "./view.js";

// so that rows do not jump while somebody reads them
const SORT_MS = 5_000;
const byId = (id) => document.getElementById(id);

class JobPage extends LivePage {
  constructor() {
    const view = new View({ sort: ORDERS, rows: ["nodes", "rails"] }, "nodes");
    super(view, new NodeRows(byId("names"), byId("bars")));
    this.order = [];
    this.sortedAt = -Infinity;
    this.found = new Map();
    this.asked = JSON.stringify(this.selection);
    this.reading.remark = (port) => clockSentence(this.found.get(port.port)?.clock);
    this.marks.remark = ({ node }) => (node ? ` on the clock of ${node}, ${clockWords(this.clockOf(node))}` : "");
    this.statistics = new JobNumbers(this);
    this.controls = new JobControls(this);
    this.captures = new JobCaptures(this);
    byId("table-details").addEventListener("toggle", () => this.learn());
    this.aim();
    this.begin();
    this.verdicts = new Verdicts(this, () => "");
  }

  get jobs() {
    return [this.store.layout.job];
  }

  get selection() {
    if (this.view.rows === "nodes") return [];
    return [["rows", "rails"], ...(this.view.chosen ?? []).map((node) => ["node", node])];
  }

  get shownSelection() {
    return this.view.rows === "nodes" ? this.shown.map((port) => ["node", port.node]) : [];
  }

  get note() {
    return " Each row is on the clock of its node; times closer than the ± of two clocks have no order.";
  }

  /** Say more of the job than its id. */
  nameJobs() {
    const { name, scheduler, began_ms: began, ended_ms: ended } = this.store.layout.job ?? {};
    const times = [began && `${ended ? "began" : "since"} ${fullTime(began)}`, ended && `ended ${fullTime(ended)}`];
    const armed = this.second && !ended && (this.second.job.armed ? "watched for silence" : "not watched for silence before its first traffic");
    const words = [name, `scheduler ${scheduler}`, ...times, armed].filter(Boolean).join(", ");
    byId("jobs").title = words;
    put(byId("jobs"), words);
  }

  get nothing() {
    return "No node of this job answers.";
  }

  get shown() {
    const { ports } = this.store.layout;
    const chosen = ports.filter((port) => !this.view.chosen || this.view.chosen.includes(port.node));
    const places = new Map(this.order.map((name, index) => [name, index]));
    const place = (port) => places.get(port.port) ?? ports.length;
    return (chosen.length ? chosen : [...ports]).sort((a, b) => place(a) - place(b));
  }

  clockOf(node) {
    return [...this.found.values()].find((each) => each.node === node)?.clock;
  }

  receive(name, data) {
    if (name === "rows") this.layOut(asPorts(data));
    else if (name === "summary") this.newSecond(asPorts(data));
    else super.receive(name, name === "events" ? { events: data.events.map(asOwn) } : data);
  }

  layOut(layout) {
    super.layOut(layout);
    this.sort();
  }

  newSecond(second) {
    this.second = second;
    this.learn();
    this.statistics.show();
    showClocks(byId("health"), second);
    this.nameJobs();
    if (this.view.held) this.attend();
  }

  /** Take over the numbers of each row, and sort by them if it is time to. */
  learn() {
    if (this.numbers) {
      this.found = new Map(this.numbers.map((each) => [each.port, each]));
      if (this.ready && byId("table-details").open) showNodes(byId("table"), this.shown, this.found);
    }
    const busy = this.reading.place || byId("names").matches(":hover, :focus-within");
    if (!busy && performance.now() - this.sortedAt > SORT_MS) this.sort();
  }

  sort() {
    if (!this.ready) return;
    if (this.found.size) this.sortedAt = performance.now();
    this.order = ordered(this.store.layout.ports, this.found, this.view.sort);
    this.draw({ overview: true });
  }

  /** Mean of the last second of a series, NaN if it is unknown. */
  moment(series) {
    const port = this.store.layout.ports[Math.floor(series / 2)];
    const way = series % 2 ? "receive" : "transmit";
    return this.found.get(port.port)?.mean_bytes_per_second?.[way] ?? NaN;
  }

  changed(patch) {
    const asked = JSON.stringify(this.selection);
    if (asked !== this.asked) {
      this.asked = asked;
      this.store.clear();
      this.second = this.heldPorts = null;
      this.stream.restart();
      this.attend();
    }
    super.changed(patch);
    if ("sort" in patch) this.sort();
    else if ("endMs" in patch) this.sortedAt = -Infinity;
    this.learn();
    this.aim();
    if ("chosen" in patch || "rows" in patch) this.controls.choice();
  }

  /** The names of the rows lead to the same time on the nodes' pages. */
  aim() {
    this.rails.aim((port) => this.view.elsewhere(port));
  }

  /** The page of the node of a row. */
  addressOf(port) {
    return `${nodeAddress(port.node)}${this.view.elsewhere(port.own ?? "")}`;
  }
}

document.documentElement.dataset.script = "yes";
window.ibpulse = new JobPage();
