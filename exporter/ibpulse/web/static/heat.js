// Paints the rows of the picture: colours for traffic, patterns for missing data and for a link that is down, and marks
// of merged samples.

import { SHADES, shades } from "./colours.js";
import { statesWithin } from "./states.js";
import { TILE_BINS } from "./store.js";

// both are transparent, to show the pattern behind them
const MISSING = 0;
const DOWN = 1;
const MARK_INK = "#ffffff";
const MARK_EDGE = "#000000";

/**
 * The image of a time span, one row per series, as 32-bit words. `rows` are {series, port, top}: the highest colour
 * means `top` bytes per second, or without it the data rate of the port that was in force at the time. `ground` is the
 * pixel for times that are not loaded or still to come. Bins are `widthMs` wide, or as wide as fits the columns.
 * `merged` is 1 for each pixel with merged samples, null without any.
 */
export function paintHeat(store, rows, fromMs, toMs, columns, map, ground, widthMs = 0) {
  const image = new ImageData(columns, Math.max(1, rows.length));
  const words = new Uint32Array(image.data.buffer).fill(ground);
  const painted = { image, words, merged: null };
  if (!store.layout) return painted;
  const perColumn = (toMs - fromMs) / columns;
  widthMs ||= store.widthFor(perColumn);
  const laws = rows.map((row) => lawOf(row, fromMs, perColumn, columns));
  const colours = shades(map);
  for (const tile of store.span(widthMs, fromMs, toMs)) {
    const left = Math.max(0, Math.floor((tile.startMs - fromMs) / perColumn));
    const right = Math.min(columns, Math.ceil((Math.min(tile.knownMs, toMs) - fromMs) / perColumn));
    const known = Math.ceil((tile.knownMs - tile.startMs) / widthMs);
    for (let column = left; column < right; column += 1) {
      const begin = fromMs + column * perColumn - tile.startMs;
      const first = Math.max(0, Math.floor(begin / widthMs + 1e-6));
      const last = Math.min(known, Math.max(first + 1, Math.ceil((begin + perColumn) / widthMs - 1e-6)));
      if (first >= last) continue;
      paintColumn(tile, laws, first, last, words, column, columns, colours);
      if (tile.merged) {
        painted.merged ??= new Uint8Array(words.length);
        markColumn(tile, laws, first, last, painted.merged, column, columns);
      }
    }
  }
  return painted;
}

/** The value of the highest colour of each column, and whether the link is down in it; numbers where they are constant. */
function lawOf(row, fromMs, perColumn, columns) {
  const states = statesWithin(row.port, fromMs, fromMs + columns * perColumn);
  const topOf = (state) => row.top ?? state.rate ?? NaN;
  const at = (ms) => Math.max(0, Math.floor((ms - fromMs) / perColumn));
  const down = states[0].downUntilMs >= fromMs + columns * perColumn;
  const law = { series: row.series, top: topOf(states[0]), down, tops: null, downs: null };
  if (states.length === 1 && (down || states[0].downUntilMs < fromMs)) return law;
  law.tops = new Float64Array(columns);
  law.downs = new Uint8Array(columns);
  for (const state of states) {
    // the column in which a state begins belongs to both, and has the higher rate
    const begin = at(state.fromMs);
    law.tops[begin] = Math.max(law.tops[begin] || 0, topOf(state)) || topOf(state);
    law.tops.fill(topOf(state), begin + 1);
    law.downs.fill(1, begin, Math.max(begin, at(Math.min(state.downUntilMs, fromMs + columns * perColumn))));
  }
  return law;
}

function paintColumn(tile, laws, first, last, words, column, columns, colours) {
  for (let row = 0; row < laws.length; row += 1) {
    const law = laws[row];
    const base = law.series * TILE_BINS;
    let highest = NaN;
    for (let bin = base + first; bin < base + last; bin += 1) {
      const value = tile.values[bin];
      if (!(value <= highest)) highest = Number.isNaN(value) ? highest : value;
    }
    const at = row * columns + column;
    const top = law.tops ? law.tops[column] : law.top;
    const down = law.downs ? law.downs[column] : law.down;
    if (highest === 0 && down) words[at] = DOWN;
    else if (Number.isNaN(highest) || !(top > 0)) {
      if (tile.whole) words[at] = MISSING;
    } else words[at] = colours[Math.min(SHADES - 1, Math.max(0, Math.round((highest / top) * (SHADES - 1))))];
  }
}

function markColumn(tile, laws, first, last, marks, column, columns) {
  laws.forEach(({ series }, row) => {
    const base = series * TILE_BINS;
    if (tile.merged.subarray(base + first, base + last).includes(1)) marks[row * columns + column] = 1;
  });
}

/** Draw painted rows at their places, `{y, height}`, from `x` on. */
export function drawRows(context, { image, words, merged }, x, places, scale) {
  const { width } = image;
  const strip = new OffscreenCanvas(width, image.height);
  strip.getContext("2d").putImageData(image, 0, 0);
  const [missing, down] = [hatching(context, scale), lattice(context, scale)];
  context.imageSmoothingEnabled = false;
  places.forEach((place, row) => {
    context.fillStyle = missing;
    context.fillRect(x, place.y, width, place.height);
    context.fillStyle = down;
    for (const [from, to] of runsOf(words.subarray(row * width, (row + 1) * width), DOWN)) {
      context.fillRect(x + from, place.y, to - from, place.height);
    }
    context.drawImage(strip, 0, row, width, 1, x, place.y, width, place.height);
    for (const [from, to] of merged ? runsOf(merged.subarray(row * width, (row + 1) * width), 1) : []) {
      drawMark(context, x + from, to - from, place, scale);
    }
  });
}

/** A bar at the upper edge of a row, white between black lines, so that it is seen on every colour; plain in a low row. */
export function drawMark(context, x, width, { y, height }, scale) {
  const thick = Math.min(Math.round(4 * scale), Math.floor(height / 2));
  const edge = thick > 2 * scale ? Math.max(1, Math.round(scale)) : 0;
  context.fillStyle = MARK_EDGE;
  context.fillRect(x, y, width, thick);
  context.fillStyle = MARK_INK;
  context.fillRect(x, y + edge, width, thick - 2 * edge);
}

/** Begin and end of each run of a word. */
function runsOf(words, word) {
  const runs = [];
  for (let from = words.indexOf(word); from >= 0; ) {
    let to = from + 1;
    while (to < words.length && words[to] === word) to += 1;
    runs.push([from, to]);
    from = words.indexOf(word, to);
  }
  return runs;
}

/** The pattern of missing data: grey stripes, so that it resembles no value. */
export function hatching(context, scale) {
  return pattern(context, Math.round(8 * scale), "#3a4149", "#8d97a3", 1.6 * scale, ["/"]);
}

/** The pattern of a link that is down: a light lattice on dark red. */
export function lattice(context, scale) {
  return pattern(context, Math.round(8 * scale), "#5c0f14", "#ffc9c2", 1.2 * scale, ["/", "\\"]);
}

function pattern(context, side, ground, ink, width, strokes) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, side, side);
  pen.strokeStyle = ink;
  pen.lineWidth = Math.max(1, width);
  pen.beginPath();
  for (const offset of [-side, 0, side]) {
    for (const stroke of strokes) {
      const [low, high] = stroke === "/" ? [side, 0] : [0, side];
      pen.moveTo(offset, low);
      pen.lineTo(offset + side, high);
    }
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
