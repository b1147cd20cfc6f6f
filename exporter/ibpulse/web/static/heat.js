// Paints the waterfall as an image with one row per series.

import { SHADES, shades } from "./colours.js";
import { TILE_BINS } from "./store.js";

// transparent, to show the hatching for missing data, or the background where nothing is loaded
const CLEAR = 0;

/**
 * The image of a time span. `rows` are {series, top}: the highest colour means `top` bytes per second; a row without it
 * is hatched. `ground` is the pixel for times that are not loaded or still to come.
 */
export function paintHeat(store, rows, fromMs, toMs, columns, map, ground) {
  const image = new ImageData(columns, Math.max(1, rows.length));
  const words = new Uint32Array(image.data.buffer).fill(ground);
  if (!store.layout) return image;
  const perColumn = (toMs - fromMs) / columns;
  const widthMs = store.widthFor(perColumn);
  const colours = shades(map);
  for (const tile of store.span(widthMs, fromMs, toMs)) {
    const left = Math.max(0, Math.floor((tile.startMs - fromMs) / perColumn));
    const right = Math.min(columns, Math.ceil((Math.min(tile.knownMs, toMs) - fromMs) / perColumn));
    const known = Math.ceil((tile.knownMs - tile.startMs) / widthMs);
    for (let column = left; column < right; column += 1) {
      const begin = fromMs + column * perColumn - tile.startMs;
      const first = Math.max(0, Math.floor(begin / widthMs + 1e-6));
      const last = Math.min(known, Math.max(first + 1, Math.ceil((begin + perColumn) / widthMs - 1e-6)));
      if (first < last) paintColumn(tile, rows, first, last, words, column, columns, colours);
    }
  }
  return image;
}

function paintColumn(tile, rows, first, last, words, column, columns, colours) {
  for (let row = 0; row < rows.length; row += 1) {
    const base = rows[row].series * TILE_BINS;
    let highest = NaN;
    for (let bin = base + first; bin < base + last; bin += 1) {
      const value = tile.values[bin];
      if (!(value <= highest)) highest = Number.isNaN(value) ? highest : value;
    }
    const at = row * columns + column;
    if (Number.isNaN(highest) || !rows[row].top) {
      if (tile.whole) words[at] = CLEAR;
    } else {
      words[at] = colours[Math.min(SHADES - 1, Math.max(0, Math.round((highest / rows[row].top) * (SHADES - 1))))];
    }
  }
}

/** The hatching for missing data, in grey, so that it resembles no value. */
export function hatching(context, scale) {
  const side = Math.round(8 * scale);
  const tile = document.createElement("canvas");
  tile.width = tile.height = side;
  const pen = tile.getContext("2d");
  pen.fillStyle = "#3a4149";
  pen.fillRect(0, 0, side, side);
  pen.strokeStyle = "#8d97a3";
  pen.lineWidth = Math.max(1, 1.6 * scale);
  pen.beginPath();
  for (const offset of [-side, 0, side]) {
    pen.moveTo(offset, side);
    pen.lineTo(offset + side, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
