// The statistics above the picture: of now, or of a held view.

import { Cards, fromSecond, fromSummary } from "./cards.js";
import { clock, day, duration, zone } from "./format.js";
import { railLabels } from "./states.js";

const PAUSE_MS = 400;
const FRESH_MS = 1_000;
const byId = (id) => document.getElementById(id);

const dated = (ms) => `${clock(ms)}, ${day(ms)} ${zone(ms)}`;

export class Numbers {
  #cards;
  #due = 0;
  #shown = null; // the response for a held view

  constructor(page, cards = new Cards(byId("cards"))) {
    this.page = page;
    this.#cards = cards;
  }

  /** The names of the windows, as in an event `summary`. */
  get windows() {
    const { second } = this.page;
    return second ? Object.keys(second.node.windows) : [];
  }

  get window() {
    const { view } = this.page;
    return this.windows.includes(view.window) ? view.window : this.windows[0];
  }

  /** Make the buttons of the windows; returns whether there were none. */
  offer() {
    const holder = byId("windows");
    if (holder.childElementCount === this.windows.length) return false;
    holder.hidden = this.page.view.held;
    holder.replaceChildren();
    for (const name of this.windows) {
      const button = document.createElement("button");
      button.dataset.window = button.textContent = name;
      holder.append(button);
    }
    return true;
  }

  /** Show the numbers of now, or again those of a held view. */
  show() {
    const { view, second, ready } = this.page;
    if (view.held && this.#shown?.endMs === view.endMs) this.#cards.show(this.ofView(this.#shown.summary, this.#shown.seconds));
    if (view.held || !second || !ready) return;
    this.#cards.show(this.ofNow(second));
    byId("numbers-about").textContent = second.end_ms ? `to ${dated(second.end_ms)}` : "";
  }

  /** The numbers of the cards from an event `summary`. */
  ofNow(second) {
    const ways = [0, 1].map((way) => this.#now(way));
    const sum = ways.includes(null) ? null : ways[0] + ways[1];
    const [transmit, receive] = ways;
    return this.#withRails({ ...fromSecond(second, this.window), now: sum, transmit, receive });
  }

  /** The numbers of the cards from a response of /api/v1/summary for a view of some seconds. */
  ofView(summary, seconds) {
    const numbers = fromSummary(summary);
    return this.#withRails({ ...numbers, heldSeconds: seconds, now: numbers.mean });
  }

  /** The response of /api/v1/summary as the page shows it. */
  read(answer) {
    return answer;
  }

  /** Numbers with the rails and their labels of the view's time. */
  #withRails(numbers) {
    const { store, momentMs, numbers: ports } = this.page;
    const { count, labels } = railLabels(store.layout, momentMs, ports);
    // a rail that disappeared still belongs to the node
    const rails = Math.max(count, numbers.rails ?? 0);
    return { ...numbers, rails, labels, unit: this.page.view.unit };
  }

  #now(way) {
    const { store } = this.page;
    const series = store.layout.ports.flatMap((port, index) => (port.rail ? [index * 2 + way] : []));
    const rates = series.map((each) => this.page.moment(each)).filter((rate) => !Number.isNaN(rate));
    return rates.length ? rates.reduce((a, b) => a + b, 0) : null;
  }

  /** The longest span of which there are statistics. */
  get mostSeconds() {
    return Math.floor((this.page.store.layout.history_ms - 2_000) / 1000);
  }

  /** Fetch the statistics of a held view once it stops moving. */
  ask() {
    const { view } = this.page;
    clearTimeout(this.#due);
    byId("windows").hidden = view.held || !this.windows.length;
    if (!view.held) {
      this.page.heldPorts = null;
      this.show();
      return;
    }
    // a view that was just held still is that of the newest second
    const { heldPorts, second, store } = this.page;
    if (!heldPorts && store.newestMs - view.endMs < FRESH_MS) this.page.heldPorts = second?.ports ?? null;
    this.#due = setTimeout(() => this.#fetch(), PAUSE_MS);
  }

  async #fetch() {
    const { view, ready } = this.page;
    if (!ready) return this.ask();
    const { endMs } = view;
    const whole = Math.ceil(view.spanMs / 1000);
    const seconds = Math.max(1, Math.min(this.mostSeconds, whole));
    const to = Math.floor(endMs / 1000) * 1000;
    const answer = await fetch(this.page.address("summary", { from: to - seconds * 1000, to })).catch(() => null);
    if (view.endMs !== endMs) return undefined;
    if (!answer?.ok) {
      byId("numbers-about").textContent = "Statistics of this view are not available now.";
      return undefined;
    }
    const summary = this.read(await answer.json());
    if (view.endMs !== endMs) return undefined;
    this.page.heldPorts = summary.ports;
    this.page.learn();
    this.#shown = { summary, seconds, endMs };
    this.#cards.show(this.ofView(summary, seconds));
    byId("numbers-about").textContent =
      `of ${seconds < whole ? "the end of " : ""}this view: ${duration(seconds * 1000)} to ${dated(summary.end_ms)}, in whole seconds`;
    this.page.draw();
    return undefined;
  }
}
