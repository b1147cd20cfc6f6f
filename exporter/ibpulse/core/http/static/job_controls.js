// Buttons and keys that only the page of a job has: the order of its rows, nodes or rails, and the way to a node.

import { Controls } from "./controls.js";
import { ORDERS } from "./job_rows.js";
import { fillMenu } from "./rails.js";

// whose rails are shown if no node was chosen
const FIRST_NODES = 2;
// those of a window of a job
const MOST_VALUES = 1_000_000;
const byId = (id) => document.getElementById(id);

export class JobControls extends Controls {
  constructor(page) {
    super(page);
    byId("waterfall").addEventListener("dblclick", () => this.open());
  }

  /** The parts of the view that groups of buttons choose. */
  get choices() {
    return [...super.choices, "sort", "rows"];
  }

  choose(name, value) {
    if (name === "rows") this.between(value);
    else super.choose(name, value);
  }

  /** Show nodes, or the rails of the chosen ones; by default those of the row that is read and of the first rows. */
  between(rows) {
    if (rows === this.view.rows || !this.page.ready) return;
    const { page, view } = this;
    const read = page.reading.place && page.rows[page.reading.place.row]?.port;
    const first = [...new Set([...(read ? [read] : []), ...page.shown].map((port) => port.node))].slice(0, FIRST_NODES);
    view.change({ rows, chosen: rows === "nodes" ? null : (view.chosen ?? first) });
  }

  choice() {
    const { page, view } = this;
    if (!page.ready) return;
    const rails = view.rows === "rails";
    const shown = new Set(page.shown.map((port) => port.node));
    const entries = page.store.layout.nodes.map((node) => [node, "", shown.has(node)]);
    fillMenu(byId("rails"), entries, rails ? "Rows of all nodes" : "All nodes", (chosen) => {
      view.change(chosen ? { chosen } : { chosen, rows: "nodes" });
    });
  }

  /** The highest samples of bins, if there are more samples than a window may have. */
  get samples() {
    const { page } = this;
    const most = Math.floor(MOST_VALUES / (2 * page.shown.length));
    const { fromMs, toMs } = page.span;
    const bounded = (toMs - fromMs) / page.store.intervalMs > most - 1 ? { max_points: most } : {};
    return { ...super.samples, ...bounded };
  }

  // actions of keys

  order() {
    this.view.change({ sort: ORDERS[(ORDERS.indexOf(this.view.sort) + 1) % ORDERS.length] });
  }

  split() {
    this.between(this.view.rows === "nodes" ? "rails" : "nodes");
  }

  /** Open the node whose row is read. */
  open() {
    const { reading, rows } = this.page;
    if (!reading.place || !rows.length) return;
    location.href = this.page.addressOf(rows[Math.min(rows.length - 1, reading.place.row)].port);
  }
}
