// The highest value of each row in each column of pixels, for the waterfall and the line chart.

import { TILE_BINS } from "./store.js";

// how much of a column is here
export const UNLOADED = 0; // nothing, or it is still to come
export const LOADING = 1; // some samples; others may still be loaded
export const LOADED = 2; // everything: a value that is missing was not measured

/**
 * Values of `rows` ({series} each) between two times: `values` in bytes per second, NaN for missing, row after row;
 * `loaded` for each column; `merged` is 1 for each value with merged samples, null without any. Bins are `widthMs` wide,
 * or as wide as fits the columns.
 */
export function readColumns(store, rows, fromMs, toMs, columns, widthMs = 0) {
  const found = {
    columns,
    values: new Float32Array(Math.max(1, rows.length) * columns).fill(NaN),
    loaded: new Uint8Array(columns),
    merged: null,
  };
  if (!store.layout) return found;
  const perColumn = (toMs - fromMs) / columns;
  const width = widthMs || store.widthFor(perColumn);
  for (const tile of store.span(width, fromMs, toMs)) {
    const bins = binsOf(tile, fromMs, toMs, perColumn, columns);
    for (let column = bins.left; column < bins.right; column += 1) {
      if (bins.begin[column] < bins.end[column]) found.loaded[column] = Math.max(found.loaded[column], tile.whole ? LOADED : LOADING);
    }
    rows.forEach(({ series }, row) => readRow(tile, series, bins, found.values, row * columns));
    if (tile.merged) {
      found.merged ??= new Uint8Array(found.values.length);
      rows.forEach(({ series }, row) => markRow(tile, series, bins, found.merged, row * columns));
    }
  }
  return found;
}

/** The columns that a tile has a part in, and its first and last bin of each. */
function binsOf(tile, fromMs, toMs, perColumn, columns) {
  const { startMs, widthMs, knownMs } = tile;
  const left = Math.max(0, Math.floor((startMs - fromMs) / perColumn));
  const right = Math.min(columns, Math.ceil((Math.min(knownMs, toMs) - fromMs) / perColumn));
  const known = Math.ceil((knownMs - startMs) / widthMs);
  const [begin, end] = [new Int32Array(columns), new Int32Array(columns)];
  for (let column = left; column < right; column += 1) {
    const at = fromMs + column * perColumn - startMs;
    begin[column] = Math.max(0, Math.floor(at / widthMs + 1e-6));
    end[column] = Math.min(known, Math.max(begin[column] + 1, Math.ceil((at + perColumn) / widthMs - 1e-6)));
  }
  return { left, right, begin, end };
}

function readRow(tile, series, { left, right, begin, end }, values, offset) {
  const base = series * TILE_BINS;
  for (let column = left; column < right; column += 1) {
    let highest = values[offset + column];
    for (let bin = begin[column]; bin < end[column]; bin += 1) {
      const value = tile.values[base + bin];
      // NaN compares as false, so a number replaces it and never the other way around
      if (value > highest || highest !== highest) highest = value;
    }
    values[offset + column] = highest;
  }
}

function markRow(tile, series, { left, right, begin, end }, marks, offset) {
  const base = series * TILE_BINS;
  for (let column = left; column < right; column += 1) {
    for (let bin = begin[column]; bin < end[column]; bin += 1) {
      if (tile.merged[base + bin]) marks[offset + column] = 1;
    }
  }
}
