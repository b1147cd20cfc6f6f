// Where the right edge of the live picture is: it moves as evenly as time does, just behind the newest samples.

const REMEMBERED = 12;
const EASE = 0.06;

export class Edge {
  #slacks = [];
  #offset = null;
  #newestMs = 0;
  #shownMs = 0;

  /** A batch that ends at `endMs` came at `nowMs` of the page's own clock. */
  note(endMs, nowMs) {
    if (this.#newestMs && endMs - this.#newestMs < 2_000) {
      // until this batch came, no later sample was known: the edge may not have been behind it
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

  /** The newest time that is surely over, though no sample of it may be here. */
  newest(nowMs) {
    return this.#offset === null ? this.#newestMs : Math.max(this.#newestMs, nowMs + this.#offset);
  }
}
