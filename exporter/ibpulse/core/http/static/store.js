// The page's samples: tiles of bins at several widths; a bin is the highest of its samples.
//
// A tile begins at a multiple of its length since the epoch, like the bins of /api/v1/window. Samples from the stream
// are merged with max, so a sample may arrive twice, from the stream and in a fetched window.

export const TILE_BINS = 512;
const MEMORY_BYTES = 64e6;
// a new tile still gets earlier batches: longer than a bin of the widest view
const RECENT_MS = 15_000;
const MEGABYTE = 1e6;

/** Bins of one width over one time span, NaN for missing data, in the order of the layout's series. */
class Tile {
  constructor(index, widthMs, series) {
    this.startMs = index * TILE_BINS * widthMs;
    this.endMs = this.startMs + TILE_BINS * widthMs;
    this.widthMs = widthMs;
    this.values = new Float32Array(series * TILE_BINS).fill(NaN);
    this.merged = null; // 1 for each bin with merged samples, if there are any
    this.partial = false; // some rows are still to be asked for again
    this.whole = false; // everything before knownMs has been loaded
    this.knownMs = this.startMs;
    this.askedAt = -Infinity;
    this.used = 0;
  }

  /** Add `count` samples of every series from `startMs` on, `stepMs` apart. */
  fold(rows, startMs, stepMs, count, factor) {
    const first = Math.max(0, Math.ceil((this.startMs - startMs) / stepMs));
    const last = Math.min(count, Math.ceil((this.endMs - startMs) / stepMs));
    for (let series = 0; series < rows.length; series += 1) {
      const row = rows[series];
      const base = series * TILE_BINS;
      for (let at = first; at < last; at += 1) {
        const value = row[at];
        if (value === null || Number.isNaN(value)) continue;
        const bin = base + Math.floor((startMs + at * stepMs - this.startMs) / this.widthMs);
        const have = this.values[bin];
        if (!(have >= value * factor)) this.values[bin] = value * factor;
      }
    }
    if (last > first) this.knownMs = Math.max(this.knownMs, Math.min(this.endMs, startMs + last * stepMs));
  }

  /** Mark merged samples; `places` are [series, first sample, number of samples], counted from `startMs` on. */
  mark(places, startMs, stepMs) {
    for (const [series, begin, count] of places) {
      const fromMs = startMs + begin * stepMs - this.startMs;
      const first = Math.max(0, Math.floor(fromMs / this.widthMs));
      const last = Math.min(TILE_BINS, Math.ceil((fromMs + count * stepMs) / this.widthMs));
      if (first >= last) continue;
      this.merged ??= new Uint8Array(this.values.length);
      this.merged.fill(1, series * TILE_BINS + first, series * TILE_BINS + last);
    }
  }
}

export class Store {
  constructor() {
    this.tiles = new Map();
    this.fine = false; // whether single samples are wanted even if the batches are coarser
    this.clear();
  }

  clear() {
    this.tiles.clear();
    this.layout = null;
    this.newestMs = 0;
    this.oldestMs = -Infinity; // before it there are no samples
    this.streamedMs = 0;
    this.liveFromMs = Infinity;
    this.recent = [];
    this.uses = 0;
  }

  /** Set the series of the batches; other series empty the store. Returns whether they are others. */
  describe(layout) {
    const names = (each) => each && JSON.stringify([each.interval_ms, each.ports.map((port) => port.port)]);
    const others = names(layout) !== names(this.layout);
    if (others) this.clear();
    this.layout = layout;
    return others;
  }

  get intervalMs() {
    return this.layout.interval_ms;
  }

  /** Time of one value of a batch: a sample, or the highest sample in it. */
  get batchMs() {
    return this.layout.batch_ms ?? this.layout.interval_ms;
  }

  /** The narrowest bins that are shown. */
  get leastMs() {
    return this.fine ? this.intervalMs : this.batchMs;
  }

  get series() {
    return this.layout.ports.length * 2;
  }

  /** The names of the series, as in /api/v1/window. */
  get names() {
    return this.layout.ports.flatMap((port) => [`${port.port} transmit`, `${port.port} receive`]);
  }

  /** The widest bin width up to `ms`: 1, 2, 5, 10, 20, 50 ... intervals, but at least the narrowest that is shown. */
  widthFor(ms) {
    let width = this.leastMs;
    for (let scale = 1; ; scale *= 10) {
      for (const step of [1, 2, 5]) {
        if (step * scale * this.intervalMs > ms) return width;
        width = Math.max(width, step * scale * this.intervalMs);
      }
    }
  }

  /** Tiles of a width over a time span, created where missing. */
  span(widthMs, fromMs, toMs) {
    const length = TILE_BINS * widthMs;
    const found = [];
    for (let index = Math.floor(fromMs / length); index * length < toMs; index += 1) {
      found.push(this.tile(index, widthMs));
    }
    return found;
  }

  tile(index, widthMs) {
    const key = `${widthMs}/${index}`;
    let tile = this.tiles.get(key);
    if (!tile) {
      tile = new Tile(index, widthMs, this.series);
      // the stream will deliver all of it, so nothing has to be fetched
      tile.whole = this.#streams(tile) && tile.startMs >= this.liveFromMs && tile.startMs >= this.streamedMs;
      this.tiles.set(key, tile);
      for (const batch of this.recent) this.fold(tile, batch);
      this.forget();
    }
    this.uses += 1;
    tile.used = this.uses;
    return tile;
  }

  /** Whether the stream fills a tile: its bins are no narrower than the values of a batch. */
  #streams(tile) {
    return tile.widthMs >= this.batchMs;
  }

  /** Add a batch of the stream. Data missing before it is fetched when it becomes visible. */
  add(batch) {
    const endMs = batch.start_ms + batch.megabytes_per_second[0].length * this.batchMs;
    if (batch.start_ms > this.streamedMs) {
      this.liveFromMs = batch.start_ms;
      this.recent = [];
      for (const tile of this.tiles.values()) {
        if (tile.endMs > this.streamedMs && tile.startMs < batch.start_ms) tile.whole = false;
      }
    }
    // a tile that was not visible yet begins with its first sample
    for (const width of new Set([...this.tiles.values()].filter((tile) => this.#streams(tile)).map((tile) => tile.widthMs))) {
      this.span(width, batch.start_ms, endMs);
    }
    for (const tile of this.tiles.values()) this.fold(tile, batch);
    this.recent.push(batch);
    while (this.recent[0].start_ms < endMs - RECENT_MS) this.recent.shift();
    this.streamedMs = Math.max(this.streamedMs, endMs);
    this.newestMs = Math.max(this.newestMs, endMs);
  }

  fold(tile, batch) {
    const rows = batch.megabytes_per_second;
    const endMs = batch.start_ms + rows[0].length * this.batchMs;
    if (!this.#streams(tile) || tile.startMs >= endMs || tile.endMs <= batch.start_ms) return;
    tile.fold(rows, batch.start_ms, this.batchMs, rows[0].length, MEGABYTE);
    tile.mark(batch.merged ?? [], batch.start_ms, this.batchMs);
  }

  /**
   * A fetched window of a tile: rows of bytes per second. The server gives complete bins alone; when the stream began
   * within the next one, the tile is asked for again after that bin.
   */
  fill(tile, rows, about) {
    tile.fold(rows, about.start_ms, tile.widthMs, about.points, 1);
    const places = about.implausible?.places ?? [];
    const named = places.map(([series, ...bins]) => [this.names.indexOf(about.series[series]), ...bins]);
    tile.mark(
      named.filter(([series]) => series >= 0),
      about.start_ms,
      tile.widthMs,
    );
    tile.knownMs = Math.max(tile.knownMs, Math.min(tile.endMs, about.end_ms));
    const covered = Math.max(this.liveFromMs, this.recent[0]?.start_ms ?? 0);
    tile.whole = !this.#streams(tile) || about.end_ms >= Math.min(tile.endMs, covered);
    // rows that did not answer are missing data for now
    tile.partial = (about.missing ?? []).length > 0;
    this.newestMs = Math.max(this.newestMs, about.end_ms);
  }

  /** The highest value of a series in a span, NaN for missing data, undefined if not loaded yet. */
  highest(series, widthMs, fromMs, toMs) {
    let found;
    for (const tile of this.span(widthMs, fromMs, toMs)) {
      const first = Math.max(0, Math.floor((fromMs - tile.startMs) / widthMs));
      const last = Math.min(TILE_BINS, Math.ceil((Math.min(toMs, tile.knownMs) - tile.startMs) / widthMs));
      for (let bin = first; bin < last; bin += 1) {
        const value = tile.values[series * TILE_BINS + bin];
        if (Number.isNaN(value) && !tile.whole) continue;
        if (found === undefined || Number.isNaN(found) || value > found) found = value;
      }
    }
    return found;
  }

  /** Whether any sample of a series in a span is merged. */
  merged(series, widthMs, fromMs, toMs) {
    return this.span(widthMs, fromMs, toMs).some((tile) => {
      if (!tile.merged) return false;
      const first = Math.max(0, Math.floor((fromMs - tile.startMs) / widthMs));
      const last = Math.min(TILE_BINS, Math.ceil((toMs - tile.startMs) / widthMs));
      const base = series * TILE_BINS;
      return first < last && tile.merged.subarray(base + first, base + last).includes(1);
    });
  }

  /** Find the time of the oldest sample, once the tiles of the whole history are loaded. */
  findOldest(tiles) {
    if (Number.isFinite(this.oldestMs) || tiles.some((tile) => !tile.whole || tile.partial)) return;
    for (const tile of tiles) {
      for (let bin = 0; bin < TILE_BINS; bin += 1) {
        for (let row = 0; row < this.series; row += 1) {
          const value = tile.values[row * TILE_BINS + bin];
          if (value === value) return void (this.oldestMs = tile.startMs + bin * tile.widthMs);
        }
      }
    }
  }

  /** The oldest time with a loaded sample; 0 without one. */
  firstMs() {
    const begun = [...this.tiles.values()].map((tile) => {
      const at = Array.from({ length: TILE_BINS }, (_, bin) => bin).find((bin) =>
        this.layout.ports.some((_, port) => !Number.isNaN(tile.values[port * 2 * TILE_BINS + bin])),
      );
      return at === undefined ? Infinity : tile.startMs + at * tile.widthMs;
    });
    const first = Math.min(...begun);
    return Number.isFinite(first) ? first : 0;
  }

  forget() {
    const bytes = this.series * TILE_BINS * 4;
    if (this.tiles.size * bytes < MEMORY_BYTES) return;
    const old = [...this.tiles].sort((a, b) => a[1].used - b[1].used);
    for (const [key] of old.slice(0, Math.ceil(old.length / 4))) this.tiles.delete(key);
  }
}
