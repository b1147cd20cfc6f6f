// Fetches tiles that the view needs and the stream did not deliver from the window API, one by one.

const BUSY_PAUSE_MS = 1_000;
const FAILED_PAUSE_MS = 3_000;
// pause before a partly filled tile is fetched again
const AGAIN_MS = 1_000;
const PARTIAL_MS = 5_000;

export class History {
  #store;
  #address;
  #changed;
  #wanted = [];
  #fetching = null;
  #later = 0;
  #working = false;

  /** `address` returns the URL of a window by its parameters; `changed` is called when a tile has been filled. */
  constructor(store, address, changed) {
    this.#store = store;
    this.#address = address;
    this.#changed = changed;
  }

  /** Whether visible tiles are still missing. */
  get busy() {
    return this.#working;
  }

  /**
   * Set the visible tiles, most urgent first. Complete tiles are not fetched, except the newest of a held view: its
   * stream is closed, so the tile may end before `untilMs`.
   */
  want(tiles, untilMs) {
    const ended = (tile) => tile.whole && tile.knownMs >= Math.min(tile.endMs, untilMs);
    const lacking = tiles.filter((tile) => !ended(tile) || tile.partial);
    const pause = (tile) => (ended(tile) ? PARTIAL_MS : AGAIN_MS);
    const due = (tile) => tile !== this.#fetching && performance.now() - tile.askedAt > pause(tile);
    this.#wanted = lacking.filter(due);
    clearTimeout(this.#later);
    if (lacking.length > this.#wanted.length) this.#later = setTimeout(this.#changed, AGAIN_MS);
    if (!this.#working && this.#wanted.length) this.#work();
  }

  async #work() {
    this.#working = true;
    while (this.#wanted.length) {
      const tile = this.#wanted.shift();
      tile.askedAt = performance.now();
      this.#fetching = tile;
      const pause = await this.#fetch(tile);
      this.#fetching = null;
      this.#changed();
      if (pause) await new Promise((resolve) => setTimeout(resolve, pause));
    }
    this.#working = false;
  }

  /** Fill a tile; returns the pause before the next in ms, 0 on success. */
  async #fetch(tile) {
    const span = { from: tile.startMs, to: tile.endMs, resolution: `${tile.widthMs}ms`, format: "npy" };
    try {
      const answer = await fetch(this.#address(span), { cache: "no-store" });
      if (!answer.ok) return answer.status === 503 ? BUSY_PAUSE_MS : FAILED_PAUSE_MS;
      const about = JSON.parse(answer.headers.get("X-Ibpulse-Window"));
      const values = readNpy(await answer.arrayBuffer());
      // other series were chosen in the meantime
      if (!this.#store.layout) return 0;
      const none = new Float32Array(about.points).fill(NaN);
      const rows = this.#store.names.map((name) => {
        const row = about.series.indexOf(name);
        return row < 0 ? none : values.subarray(row * about.points, (row + 1) * about.points);
      });
      this.#store.fill(tile, rows, about);
      return 0;
    } catch {
      return FAILED_PAUSE_MS;
    }
  }
}

/** The float32 values of an NPY file, version 1; they begin at a multiple of 64 bytes. */
export function readNpy(buffer) {
  const begin = 10 + new DataView(buffer).getUint16(8, true);
  return new Float32Array(buffer, begin);
}
