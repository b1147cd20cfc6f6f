// Draws the waterfall and its axis on a canvas, for the page and for saved pictures.

import { shade } from "./colours.js";
import { clock, duration, fullTime, rate, rateParts } from "./format.js";
import { DIFFERENCE_MAP, drawRows, paintHeat } from "./heat.js";
import { drawMark, hatching, lattice } from "./patterns.js";
import { stateAt } from "./states.js";

// background where nothing is loaded: --ground of the style sheet
export const GROUND_WORD = 0xff221b16;
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5];
const LABEL_PIXELS = 92;

/**
 * The rows to paint: one per shown port and direction. `top` is the value of the highest colour, null if that is the
 * data rate in force.
 */
export function plannedRows(layout, ports, direction, unit, ms) {
  const rates = ports.map((port) => stateAt(port, ms).rate).filter(Boolean);
  const common = rates.length ? Math.max(...rates) : 50e9;
  const ways = direction === "both" ? [0, 1] : [direction === "transmit" ? 0 : 1];
  return ports.flatMap((port) =>
    ways.map((way) => ({
      port,
      way,
      series: layout.ports.findIndex((each) => each.port === port.port) * 2 + way,
      top: unit === "ratio" ? null : common,
      first: way === ways[0],
    })),
  );
}

/** Top and height of each row: a gap between ports, of which `strip` is to be painted, a hairline between directions. */
export function placeRows(rows, top, height, scale, strip = 0) {
  const ports = rows.filter((row) => row.first).length || 1;
  const each = height / ports;
  const gap = Math.max(1, Math.round(Math.min(4 * scale, each * 0.12))) + stripHeight(strip, each);
  const ways = rows.length / ports;
  return rows.map((row, index) => {
    const begin = top + Math.floor(index / ways) * each;
    const part = (each - gap) / ways;
    const way = index % ways;
    const y = Math.round(begin + way * part);
    return {
      y,
      height: Math.max(1, Math.round(begin + (way + 1) * part) - y - (way + 1 < ways ? Math.round(scale) : 0)),
    };
  });
}

/** At most a fifth of the height of a port: with many of them, the map is what counts. */
function stripHeight(strip, each) {
  return Math.round(Math.min(strip, each / 5));
}

/** The places of the strips below the ports, one per port. */
export function placeStrips(rows, top, height, scale, strip) {
  const each = height / (rows.filter((row) => row.first).length || 1);
  const places = placeRows(rows, top, height, scale, strip);
  const last = places.filter((_, index) => index + 1 === places.length || rows[index + 1].first);
  return last.map(({ y, height: tall }) => ({ y: y + tall, height: stripHeight(strip, each) }));
}

/** Paint the rows into a rectangle of a canvas; returns what was read. All lengths are in canvas pixels. */
export function paintRows(context, box, store, rows, span, look, scale, widthMs = 0) {
  const columns = Math.max(1, Math.round(box.width));
  const painted = paintHeat(store, rows, span.fromMs, span.toMs, columns, look, GROUND_WORD, widthMs);
  drawRows(context, painted, box.x, placeRows(rows, box.y, box.height, scale, look.strip ?? 0), scale);
  return painted.read;
}

/** The time axis below the rows. */
export function paintAxis(context, box, span, colours, scale) {
  const perPixel = (span.toMs - span.fromMs) / box.width;
  const step = STEPS_MS.find((each) => each / perPixel >= LABEL_PIXELS * scale) ?? STEPS_MS.at(-1);
  const digits = step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3;
  context.font = `${12 * scale}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.textAlign = "center";
  for (let ms = Math.ceil(span.fromMs / step) * step; ms <= span.toMs; ms += step) {
    const x = box.x + (ms - span.fromMs) / perPixel;
    context.fillStyle = colours.line;
    context.fillRect(Math.round(x), box.y, Math.max(1, Math.round(scale)), 5 * scale);
    const text = clock(ms, digits);
    const half = context.measureText(text).width / 2;
    // a label at the edge is moved inside, if that leaves it near its tick
    const at = Math.max(box.x + half, Math.min(box.x + box.width - half, x));
    if (Math.abs(at - x) > half) continue;
    context.fillStyle = colours.soft;
    context.fillText(text, at, box.y + 8 * scale);
  }
}

/** The colour scale with its unit. */
export function paintLegend(context, box, look, top, unit, colours, scale) {
  const map = look.difference ? DIFFERENCE_MAP : look.map;
  const bar = { x: box.x, y: box.y, width: box.width, height: 12 * scale };
  for (let x = 0; x < bar.width; x += 1) {
    context.fillStyle = shade(map, x / (bar.width - 1));
    context.fillRect(bar.x + x, bar.y, 1, bar.height);
  }
  context.fillStyle = colours.soft;
  context.font = `${12 * scale}px system-ui, sans-serif`;
  context.textBaseline = "top";
  legendMarks(top, unit, look.difference).forEach((text, index, all) => {
    context.textAlign = index === 0 ? "left" : index === all.length - 1 ? "right" : "center";
    context.fillText(text, bar.x + (bar.width * index) / (all.length - 1), bar.y + 16 * scale);
  });
}

/** Labels at the start, middle and end of the scale. */
export function legendMarks(top, unit, difference = false) {
  if (difference && unit === "ratio") return ["−100 %", "the median of the rails", "+100 %"];
  if (difference) return [`−${rate(top, unit)}`, "the median of the rails", `+${rate(top, unit)}`];
  if (unit === "ratio") return ["0 %", "50 %", "100 % of line rate"];
  const plain = (value) => Number(Number(value).toPrecision(3));
  const [whole, name] = rateParts(top, unit);
  return ["0", `${plain(whole / 2)}`, `${plain(whole)} ${name}`];
}

/** The colour of the lowest value, or of no difference, and what it means. */
export function zeroOf({ map, difference }) {
  return difference ? [shade(DIFFERENCE_MAP, 0.5), "As the median"] : [shade(map, 0), "No traffic"];
}

/** The legend of what is no value: colour or pattern, and meaning, from `x` on. Returns the end of the last. */
export function paintKeys(context, x, y, look, colours, scale) {
  const [zero, words] = zeroOf(look);
  context.font = `${12 * scale}px system-ui, sans-serif`;
  context.textBaseline = "top";
  context.textAlign = "left";
  const keys = [
    [zero, words],
    [lattice(context, scale), "Link down"],
    [hatching(context, scale), "No data"],
    ["", "Samples merged"],
  ];
  for (const [fill, meaning] of keys) {
    context.fillStyle = fill || shade(look.map, 0.5);
    context.fillRect(x, y, 20 * scale, 12 * scale);
    if (!fill) drawMark(context, x, 20 * scale, { y, height: 12 * scale }, scale);
    context.strokeStyle = colours.line;
    context.strokeRect(x, y, 20 * scale, 12 * scale);
    context.fillStyle = colours.soft;
    context.fillText(meaning, x + 26 * scale, y);
    x += 26 * scale + context.measureText(meaning).width + 18 * scale;
  }
  return x;
}

/** Marks of events above a picture, as small triangles. */
function paintMarks(context, events, box, span, colours, scale) {
  context.fillStyle = colours.ink;
  for (const { time_ms: ms } of events) {
    if (ms < span.fromMs || ms > span.toMs) continue;
    const x = box.x + ((ms - span.fromMs) / (span.toMs - span.fromMs)) * box.width;
    context.beginPath();
    context.moveTo(x - 4 * scale, box.y - 7 * scale);
    context.lineTo(x + 4 * scale, box.y - 7 * scale);
    context.lineTo(x, box.y - scale);
    context.fill();
  }
}

/** A sentence that explains a column of pixels and the halves of a row. */
export function columnSentence(intervalMs, perColumnMs, direction) {
  const halves = direction === "both" ? "Upper half of a row: transmit; lower half: receive. " : "";
  const one = `one ${duration(intervalMs)} sample`;
  const many = `the highest ${duration(intervalMs)} sample in ${duration(perColumnMs)}`;
  return `${halves}Each column is ${perColumnMs <= intervalMs * 1.001 ? one : many}.`;
}

/** A picture to save, with title, names, rows, axis and legend. Returns a promise of a PNG. */
export function savedPicture(store, rows, span, look, title) {
  const scale = 2;
  const [width, right] = [1400 * scale, 24 * scale];
  const ports = rows.filter((row) => row.first);
  const captions = ports.map((row) => look.caption(row.port));
  const [top, body] = [64 * scale, Math.max(160, ports.length * 44) * scale];
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = top + body + 92 * scale;
  const context = canvas.getContext("2d");
  context.font = nameFont(scale);
  const widest = Math.max(...captions.map((text) => context.measureText(text).width));
  const left = Math.max(110 * scale, Math.ceil(widest) + 36 * scale);
  const box = { x: left, y: top, width: width - left - right, height: body };
  context.fillStyle = look.colours.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  paintTitle(context, title, span, look.colours, left, scale);
  // the bins of the screen, because others may not be loaded
  paintRows(context, box, store, rows, span, look, scale, look.widthMs);
  paintNames(context, captions, box, left - 12 * scale, look.colours, scale);
  paintAxis(context, { ...box, y: top + body + 2 * scale }, span, look.colours, scale);
  paintMarks(context, look.events, box, span, look.colours, scale);
  const below = top + body + 44 * scale;
  paintLegend(context, { x: left, y: below, width: 320 * scale }, look, look.top, look.unit, look.colours, scale);
  paintKeys(context, left + 400 * scale, below, look, look.colours, scale);
  context.textAlign = "right";
  context.fillText(look.sentence, width - right, below + 18 * scale);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function paintTitle(context, title, span, colours, left, scale) {
  context.textAlign = "left";
  context.textBaseline = "alphabetic";
  context.fillStyle = colours.ink;
  context.font = `600 ${20 * scale}px system-ui, sans-serif`;
  context.fillText(title, left, 30 * scale);
  context.fillStyle = colours.soft;
  context.font = `${13 * scale}px system-ui, sans-serif`;
  context.fillText(`${fullTime(span.fromMs)}, ${duration(span.toMs - span.fromMs)}`, left, 50 * scale);
}

function nameFont(scale) {
  return `${13 * scale}px ui-monospace, monospace`;
}

function paintNames(context, captions, box, x, colours, scale) {
  context.fillStyle = colours.ink;
  context.font = nameFont(scale);
  context.textAlign = "right";
  context.textBaseline = "middle";
  captions.forEach((text, index) => {
    context.fillText(text, x, box.y + ((index + 0.5) * box.height) / captions.length);
  });
}
