// Paints the rows of the picture: colours for traffic, or for differences between rails, patterns for the rest.

import { SHADES, shades } from "./colours.js";
import { LOADED, UNLOADED, readColumns } from "./columns.js";
import { differences, groupRows } from "./comparison.js";
import { drawMark, hatching, lattice } from "./patterns.js";
import { statesWithin } from "./states.js";

export const DIFFERENCE_MAP = "difference";
// both are transparent, to show the pattern behind them
const MISSING = 0;
const DOWN = 1;
let strip = null;

/**
 * The image of a time span, one row per series, as 32-bit words. `rows` are {series, port, top}: the highest colour
 * means `top` bytes per second, or without it the data rate of the port that was in force at the time. `look` has the
 * `map` of colours, and with `difference` the colours are those of the difference from the median of similar rails.
 * `ground` is the pixel for times that are not loaded or still to come. Bins are `widthMs` wide, or as wide as fits the
 * columns. `merged` is 1 for each pixel with merged samples, null without any.
 */
export function paintHeat(store, rows, fromMs, toMs, columns, look, ground, widthMs = 0) {
  const image = new ImageData(columns, Math.max(1, rows.length));
  const words = new Uint32Array(image.data.buffer).fill(ground);
  const read = readColumns(store, rows, fromMs, toMs, columns, widthMs);
  const painted = { image, words, merged: read.merged, read };
  if (!store.layout) return painted;
  const other = look.difference ? differences(read, groupRows(rows, toMs - 1)) : null;
  const colours = shades(other ? DIFFERENCE_MAP : look.map);
  rows.forEach((row, index) => {
    const law = lawOf(row, fromMs, (toMs - fromMs) / columns, columns);
    paintRow(words, index * columns, read, law, other, colours);
  });
  return painted;
}

/** The value of the highest colour of each column, and whether the link is down in it; numbers where they are constant. */
function lawOf(row, fromMs, perColumn, columns) {
  const states = statesWithin(row.port, fromMs, fromMs + columns * perColumn);
  const topOf = (state) => row.top ?? state.rate ?? NaN;
  const at = (ms) => Math.max(0, Math.floor((ms - fromMs) / perColumn));
  const down = states[0].downUntilMs >= fromMs + columns * perColumn;
  const law = { top: topOf(states[0]), down, tops: null, downs: null };
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

function paintRow(words, offset, { values, loaded, columns }, law, other, colours) {
  for (let column = 0; column < columns; column += 1) {
    if (loaded[column] === UNLOADED) continue;
    const at = offset + column;
    const value = values[at];
    const top = law.tops ? law.tops[column] : law.top;
    if (value === 0 && (law.downs ? law.downs[column] : law.down)) words[at] = DOWN;
    else if (value !== value || !(top > 0)) {
      if (loaded[column] === LOADED) words[at] = MISSING;
    } else {
      const part = other ? (other[at] / top + 1) / 2 : value / top;
      words[at] = colours[Math.min(SHADES - 1, Math.max(0, Math.round(part * (SHADES - 1))))];
    }
  }
}

/** Draw painted rows at their places, `{y, height}`, from `x` on. */
export function drawRows(context, { image, words, merged }, x, places, scale) {
  const { width, height } = image;
  if (strip?.width !== width || strip?.height !== height) strip = new OffscreenCanvas(width, height);
  strip.getContext("2d").putImageData(image, 0, 0);
  const [missing, down] = [hatching(context, scale), lattice(context, scale)];
  context.imageSmoothingEnabled = false;
  places.forEach((place, row) => {
    const own = words.subarray(row * width, (row + 1) * width);
    // once over all of them: the image covers what is between
    const [first, last] = [own.indexOf(MISSING), own.lastIndexOf(MISSING)];
    context.fillStyle = missing;
    if (first >= 0) context.fillRect(x + first, place.y, last + 1 - first, place.height);
    context.fillStyle = down;
    for (const [from, to] of runsOf(own, DOWN)) context.fillRect(x + from, place.y, to - from, place.height);
    context.drawImage(strip, 0, row, width, 1, x, place.y, width, place.height);
    for (const [from, to] of merged ? runsOf(merged.subarray(row * width, (row + 1) * width), 1) : []) {
      drawMark(context, x + from, to - from, place, scale);
    }
  });
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
