// The nodes of a job as text: one line about their clocks and answers, and a table.

import { element } from "./elements.js";
import { UNKNOWN, decimal, duration, rate, percent } from "./format.js";
import { clockWords, latenessWords, trouble } from "./job_rows.js";
import { label, stateAt } from "./states.js";

const MOST_NAMES = 6;

/** Fill the list of what the gateway knows of the nodes and their clocks. */
export function showClocks(list, { job }) {
  const names = (nodes) => (nodes.length > MOST_NAMES ? `${nodes.length} of ${job.nodes}` : nodes.join(", "));
  const free = job.unsynchronised ?? [];
  const lines = [
    ["answering", `${job.answering} of ${job.nodes}`, "Nodes of the job that answer the gateway.", job.answering < job.nodes],
    ["clocks known", `${job.clock?.nodes ?? 0} of ${job.nodes}`, "Nodes whose clock offset the gateway could measure.", false],
    [
      "clocks apart",
      job.clock && job.nodes > 1 ? `${duration(job.clock.spread_ms)} ± ${duration(job.clock.uncertainty_ms)}` : "",
      "Difference between the clock that is furthest ahead and the one furthest behind. Times are those of each node's own clock.",
      false,
    ],
    ["not synchronised", free.length ? names(free) : "", `Nodes whose kernel says that nothing synchronises its clock: ${free.join(", ")}.`, true],
  ];
  list.replaceChildren();
  element("li", "title", list).textContent = "Nodes";
  for (const [name, value, title, bad] of lines.filter((line) => line[1])) {
    const item = element("li", "", list);
    item.title = title;
    item.dataset.tone = bad ? "bad" : "";
    item.append(`${name} `);
    element("b", "", item).textContent = value;
  }
}

function known(value, words) {
  return value === null || value === undefined ? UNKNOWN : words(value);
}

/** Fill the table of the rows. */
export function showNodes(table, ports, found) {
  const columns = [
    ["Row", (port) => port.port],
    ["Rack", (port) => port.labels?.rack ?? ""],
    ["Leaf", (port) => port.labels?.leaf ?? ""],
    ["State", (port, n) => port.problem_text || label(stateAt(port, Infinity)) || trouble(n) || "ok"],
    ["Clock", (port, n) => clockWords(n?.clock)],
    ["Late", (port, n) => latenessWords(n)],
    ["Step period", (port, n) => (n?.step_period_seconds ? duration(n.step_period_seconds * 1000) : UNKNOWN)],
    ["Duty cycle", (port, n) => percent(n?.duty_cycle_ratio)],
    ["Active mean", (port, n) => known(n?.active_bytes_per_second, (each) => rate(each))],
    ["Rail fairness", (port, n) => decimal(n?.rail_fairness_ratio, 3)],
  ];
  table.replaceChildren();
  const head = element("tr", "", element("thead", "", table));
  for (const [title] of columns) element("th", "", head).textContent = title;
  const body = element("tbody", "", table);
  for (const port of ports) {
    const row = element("tr", "", body);
    columns.forEach(([, text], index) => {
      element(index ? "td" : "th", "", row).textContent = text(port, found.get(port.port));
    });
  }
}
