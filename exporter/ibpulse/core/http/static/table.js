// Shows the node's statistics of all windows as a table.

import { fromWindow } from "./cards.js";
import { element } from "./elements.js";
import { decimal, rate, percent } from "./format.js";

/** Fill the table. */
export function showTable(table, second, unit) {
  const names = Object.keys(second.node.windows);
  const all = names.map((name) => fromWindow(second.node.windows[name]));
  const scales = Object.keys(all[0]?.cv ?? {});
  const rows = [
    ["Peak sample", all.map((n) => rate(n.peak, unit))],
    ["Mean", all.map((n) => rate(n.mean, unit))],
    ["Active mean", all.map((n) => rate(n.activeMean, unit))],
    ["Peak ÷ mean", all.map((n) => decimal(n.peakToMean))],
    ["Duty cycle", all.map((n) => percent(n.duty))],
    ...scales.map((scale) => [`Burstiness (CV) at ${scale}`, all.map((n) => decimal(n.cv[scale]))]),
  ];
  table.replaceChildren();
  const head = element("tr", "", element("thead", "", table));
  const titles = ["Transmit + receive of all rails", ...names.map((name) => `last ${name}`)];
  for (const title of titles) element("th", "", head).textContent = title;
  const body = element("tbody", "", table);
  for (const [name, cells] of rows) {
    const row = element("tr", "", body);
    element("th", "", row).textContent = name;
    for (const cell of cells) element("td", "", row).textContent = cell;
  }
}
