// The right edge of the live view: it moves steadily, just behind the newest samples.

const REMEMBERED = 12;
const EASE = 0.06;

export class Edge {
  #slacks = [];
  #offset = null;
  #newestMs = 0;
  #shownMs = 0;

  /** Note a batch that ends at `endMs` and arrived at `nowMs` of the page's clock. */
  note(endMs, nowMs) {
    // a batch of an earlier time says nothing about the newest
    if (endMs === this.#newestMs) return;
    if (this.#newestMs && endMs - this.#newestMs < 2_000) {
      // no later sample was known before this batch, so the edge may have been ahead of the data
      this.#slacks.push(this.#newestMs - nowMs);
      if (this.#slacks.length > REMEMBERED) this.#slacks.shift();
    } else {
      this.#slacks = [];
      this.#offset = null;
      this.#shownMs = 0;
    }
    this.#newestMs = endMs;
  }

  /** The edge at `nowMs`. */
  at(nowMs) {
    if (!this.#slacks.length) return this.#newestMs;
    const target = Math.min(...this.#slacks);
    this.#offset = this.#offset === null ? target : this.#offset + (target - this.#offset) * EASE;
    this.#shownMs = Math.min(this.#newestMs, Math.max(this.#shownMs, nowMs + this.#offset));
    return this.#shownMs;
  }

  /** The newest time that has certainly passed, even if its samples have not arrived. */
  newest(nowMs) {
    return this.#offset === null ? this.#newestMs : Math.max(this.#newestMs, nowMs + this.#offset);
  }
}
