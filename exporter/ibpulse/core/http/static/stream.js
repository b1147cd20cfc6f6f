// The connection to the stream, which reconnects after a loss.

// each describes the series of the batches after it
const LAYOUTS = ["ports", "rows"];
const SILENCE_MS = 6_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;

export class Stream {
  #on;
  #address;
  #abort = null;
  #lastId = "";
  #wake = null;

  /** `on` has `event(name, data)` and `state(name, detail)`: connecting, open, lost, closed. `address` returns the URL. */
  constructor(on, address) {
    [this.#on, this.#address] = [on, address];
  }

  get running() {
    return this.#abort !== null;
  }

  start() {
    if (this.running) return;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  stop() {
    if (!this.running) return;
    this.#abort.abort();
    this.#abort = null;
    this.#on.state("closed");
  }

  /** Begin anew, because other series are wanted. */
  restart() {
    this.#lastId = "";
    if (!this.running) return;
    this.stop();
    this.start();
  }

  /** Try again now instead of after the pause. */
  hurry() {
    this.#wake?.();
  }

  async #run(signal) {
    let pause = FIRST_PAUSE_MS;
    while (!signal.aborted) {
      this.#on.state("connecting");
      const loss = await this.#listen(signal, () => {
        pause = FIRST_PAUSE_MS;
      });
      if (signal.aborted) return;
      this.#on.state("lost", { ...loss, pauseMs: pause });
      await this.#rest(pause, signal);
      pause = Math.min(LONGEST_PAUSE_MS, pause * 2);
    }
  }

  /** Run one connection; returns the reason of its end, and whether the server refused it. */
  async #listen(signal, opened) {
    const attempt = new AbortController();
    const give_up = () => attempt.abort();
    signal.addEventListener("abort", give_up);
    let watchdog = setTimeout(give_up, SILENCE_MS);
    try {
      const headers = this.#lastId ? { "Last-Event-ID": this.#lastId } : {};
      const answer = await fetch(this.#address(), { headers, signal: attempt.signal, cache: "no-store" });
      if (!answer.ok) return await refusal(answer);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return { reason: "the server closed the stream" };
        clearTimeout(watchdog);
        watchdog = setTimeout(give_up, SILENCE_MS);
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) this.#dispatch(part, opened);
      }
    } catch {
      return { reason: "no response from the server" };
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", give_up);
    }
  }

  #dispatch(text, opened) {
    const fields = new Map();
    for (const line of text.split("\n")) {
      const at = line.indexOf(": ");
      if (at > 0) fields.set(line.slice(0, at), line.slice(at + 2));
    }
    if (!fields.has("event")) return;
    if (fields.has("id")) this.#lastId = fields.get("id");
    if (LAYOUTS.includes(fields.get("event"))) {
      opened();
      this.#on.state("open");
    }
    this.#on.event(fields.get("event"), JSON.parse(fields.get("data")));
  }

  #rest(ms, signal) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms * (0.8 + 0.4 * Math.random()));
      const now = () => {
        clearTimeout(timer);
        resolve();
      };
      this.#wake = now;
      signal.addEventListener("abort", now, { once: true });
    });
  }
}

async function refusal(answer) {
  try {
    return { reason: (await answer.json()).detail, refused: true };
  } catch {
    return { reason: `the server responded with ${answer.status}`, refused: true };
  }
}
