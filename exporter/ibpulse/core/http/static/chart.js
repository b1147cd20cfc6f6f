// The line chart under the waterfall: the sum of the shown rails, or each rail over the median of those like it.

import { put } from "./elements.js";
import { UNLOADED } from "./columns.js";
import { groupRows, meanDifferences, medians } from "./comparison.js";
import { RATES, percent, rate, rateParts } from "./format.js";
import { stateAt } from "./states.js";

export const CHARTS = ["node", "rails", "off"];
const MARGIN = 3;
const WAYS = ["transmit", "receive"];

/** The series of a chart in one array each, with their roles: {values, way, kind, port}. */
export function chartLines(kind, read, rows, ms) {
  const { columns, values } = read;
  const own = rows.map((row, index) => ({ ...row, values: values.subarray(index * columns, (index + 1) * columns) }));
  if (kind === "node") {
    const ways = [...new Set(rows.map((row) => row.way))];
    return ways.map((way) => ({ kind, way, values: sum(own.filter((each) => each.way === way && stateAt(each.port, ms).rail !== false), read) }));
  }
  const groups = groupRows(rows, ms);
  const middles = medians(read, groups).map((middle, index) => ({ kind: "median", way: rows[groups[index][0]].way, values: middle }));
  return [...own.map(({ values: line, way, port }) => ({ kind, way, port, values: line })), ...middles];
}

/** The sum of what is known in each column; NaN where nothing is. */
function sum(lines, { columns, loaded }) {
  const total = new Float32Array(columns).fill(NaN);
  for (let column = 0; column < columns; column += 1) {
    if (loaded[column] === UNLOADED) continue;
    for (const { values } of lines) {
      const value = values[column];
      if (value === value) total[column] = (total[column] === total[column] ? total[column] : 0) + value;
    }
  }
  return total;
}

/** The highest value of the axis: that of a line, as a round number of a unit. */
export function axisTop(lines, unit, line) {
  let highest = 0;
  for (const { values } of lines) for (const value of values) if (value > highest) highest = value;
  if (!highest) return line || 1;
  // as a share of the line rate, in tenths of it
  const one = unit === "ratio" ? line : RATES[rateParts(highest, unit)[1]];
  const power = 10 ** Math.floor(Math.log10(highest / one));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((each) => each * power * one >= highest * 0.999) * power * one;
}

/** Draw lines into a canvas; `chosen` is the port to emphasise. */
export function drawChart({ canvas, context, scale }, lines, top, colours, chosen) {
  const { width, height } = canvas;
  const y = (value) => height - MARGIN * scale - (value / top) * (height - 2 * MARGIN * scale);
  context.clearRect(0, 0, width, height);
  context.fillStyle = colours.line;
  for (const part of [0, 0.5, 1]) context.fillRect(0, Math.round(y(part * top)), width, Math.max(1, scale / 2));
  context.lineJoin = "round";
  for (const line of lines) {
    const emphasised = chosen && line.port?.port === chosen;
    context.strokeStyle = emphasised ? colours.ink : line.kind === "rails" ? colours.soft : colours[WAYS[line.way]];
    context.globalAlpha = line.kind === "rails" && !emphasised ? 0.45 : 1;
    context.lineWidth = (line.kind === "rails" && !emphasised ? 1 : 2) * scale;
    stroke(context, line.values, y);
  }
  context.globalAlpha = 1;
}

/** A line that ends where values are missing. */
function stroke(context, values, y) {
  context.beginPath();
  let open = false;
  for (let column = 0; column < values.length; column += 1) {
    const value = values[column];
    if (value !== value) open = false;
    else if (open) context.lineTo(column + 0.5, y(value));
    else {
      context.moveTo(column, y(value));
      context.lineTo(column + 0.5, y(value));
      open = true;
    }
  }
  context.stroke();
}

/** The chart with its scale and its words; `look` has unit, direction and whether a column holds several samples. */
export class Chart {
  #parts;

  constructor(parts) {
    this.#parts = parts;
  }

  show(fit, read, rows, kind, ms, look) {
    const lines = chartLines(kind, read, rows, ms);
    const whole = lineRate(rows, kind, ms);
    const top = axisTop(lines, look.unit, whole);
    drawChart(fit, lines, top, look.colours, look.chosen);
    put(this.#parts.top, look.unit === "ratio" ? percent(top / whole, 0) : rate(top, look.unit));
    const some = look.several ? " Each point is the highest sample of its column" : "";
    const bound = look.several ? (kind === "node" ? "; their sum is an upper limit." : ".") : "";
    put(this.#parts.words, kind === "node" ? `Sum of the shown rails.${some}${bound}` : `${this.#farthest(read, rows, ms, look)}${some}${bound}`);
  }

  /** The rail that differs most from the others on average. */
  #farthest(read, rows, ms, look) {
    const found = meanDifferences(read, groupRows(rows, ms));
    let at = -1;
    found.forEach((value, index) => {
      if (Math.abs(value) > Math.abs(found[at] ?? 0)) at = index;
    });
    if (at < 0) return "Rails and their median.";
    const sign = found[at] < 0 ? "−" : "+";
    const { port, way } = rows[at];
    return `Rails and their median. Farthest: ${port.port} ${WAYS[way]}, ${sign}${rate(Math.abs(found[at]), look.unit)}.`;
  }
}

/** The line rate that belongs to the chart: of all rails, or of the fastest. */
function lineRate(rows, kind, ms) {
  const rates = rows.filter((row) => row.first).map((row) => stateAt(row.port, ms).rate ?? 0);
  return (kind === "node" ? rates.reduce((a, b) => a + b, 0) : Math.max(...rates)) || 1;
}
