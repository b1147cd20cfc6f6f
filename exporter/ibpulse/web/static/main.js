// The live page: connects stream, picture, statistics and controls.

import { Controls } from "./controls.js";
import { Cards, fromSecond, fromSummary } from "./cards.js";
import { UNKNOWN, clock, duration } from "./format.js";
import { showHealth } from "./health.js";
import { Page } from "./page.js";
import { Stream } from "./stream.js";
import { showTable } from "./table.js";
import { View } from "./view.js";

const SUMMARY_PAUSE_MS = 400;
const LATER = "Their samples are loaded when needed.";
const byId = (id) => document.getElementById(id);

class Live extends Page {
  constructor() {
    super(new View());
    this.cards = new Cards(byId("cards"));
    this.asked = 0;
    this.stream = new Stream({
      event: (name, data) => this.receive(name, data),
      state: (name, detail) => this.connection(name, detail),
    });
    this.controls = new Controls(this);
    this.view.listen((patch) => this.changed(patch));
    this.light = matchMedia("(prefers-color-scheme: light)");
    this.light.addEventListener("change", () => this.dress());
    addEventListener("hashchange", () => {
      this.view.read();
      this.changed({ endMs: this.view.endMs });
    });
    document.addEventListener("visibilitychange", () => this.attend());
    addEventListener("online", () => this.stream.hurry());
    byId("host").textContent = location.host;
    document.title = `ibpulse · ${location.host}`;
    this.dress();
    this.attend();
  }

  get windowNames() {
    return this.second ? Object.keys(this.second.node.windows) : [];
  }

  get windowName() {
    return this.windowNames.includes(this.view.window) ? this.view.window : this.windowNames[0];
  }

  /** Run the stream only while the newest samples are visible. */
  attend() {
    const looking = !document.hidden && (!this.view.held || !this.ready);
    if (looking) this.stream.start();
    else this.stream.stop();
    if (!document.hidden) this.draw({ overview: true });
  }

  receive(name, data) {
    if (name === "ports") this.layOut(data);
    else if (name === "batch") this.add(data);
    else if (name === "summary") this.newSecond(data);
    else if (name === "dropped") this.say(`This page was too slow: ${data.events} events were dropped. ${LATER}`);
  }

  layOut(layout) {
    this.describe(layout);
    this.paintScale();
    this.controls.choice();
    const mine = document.documentElement.dataset.version;
    if (layout.version !== mine) this.say("The server now runs another version; reload this page.");
  }

  add(batch) {
    super.add(batch);
    if (this.view.held) this.attend(); // a held view needs only the layout and the newest time
  }

  newSecond(second) {
    this.second = second;
    this.offerWindows();
    showHealth(byId("health"), second);
    showTable(byId("table"), second);
    this.showNumbers();
  }

  offerWindows() {
    const holder = byId("windows");
    if (holder.childElementCount === this.windowNames.length) return;
    holder.replaceChildren();
    for (const name of this.windowNames) {
      const button = document.createElement("button");
      button.dataset.window = button.textContent = name;
      holder.append(button);
    }
    this.controls.show();
  }

  showNumbers() {
    if (this.view.held || !this.second) return;
    const ways = [0, 1].map((way) => this.nowOf(way));
    const sum = ways.includes(null) ? null : ways[0] + ways[1];
    const line = this.lineRate();
    this.cards.show({
      ...fromSecond(this.second, this.windowName),
      now: sum,
      transmit: ways[0],
      receive: ways[1],
      line,
    });
    byId("numbers-about").textContent = this.second.end_ms ? `to ${clock(this.second.end_ms)}` : "";
  }

  nowOf(way) {
    const series = this.store.layout.ports.flatMap((port, index) => (port.rail ? [index * 2 + way] : []));
    const rates = series.map((each) => this.moment(each)).filter((rate) => !Number.isNaN(rate));
    return rates.length ? rates.reduce((a, b) => a + b, 0) : null;
  }

  lineRate() {
    const rails = this.store.layout.ports.filter((port) => port.rail && port.rate_bytes_per_second);
    return rails.reduce((sum, port) => sum + 2 * port.rate_bytes_per_second, 0);
  }

  /** Fetch the statistics of a held view from the server once it stops moving. */
  askNumbers() {
    clearTimeout(this.asked);
    byId("windows").hidden = this.view.held;
    if (!this.view.held) return this.showNumbers();
    this.asked = setTimeout(() => this.fetchNumbers(), SUMMARY_PAUSE_MS);
    return undefined;
  }

  async fetchNumbers() {
    if (!this.ready) {
      this.askNumbers();
      return;
    }
    const endMs = this.view.endMs;
    const most = Math.floor((this.store.layout.history_ms - 2_000) / 1000);
    const seconds = Math.max(1, Math.min(most, Math.ceil(this.view.spanMs / 1000)));
    const answer = await fetch(`/api/v1/summary?window=${seconds}s&to=${Math.round(endMs)}`).catch(() => null);
    if (this.view.endMs !== endMs) return;
    if (!answer?.ok) {
      byId("numbers-about").textContent = "Statistics of this view are not available now.";
      return;
    }
    const summary = await answer.json();
    const numbers = fromSummary(summary);
    this.cards.show({ ...numbers, heldSeconds: seconds, now: numbers.mean, line: this.lineRate() });
    byId("numbers-about").textContent =
      `of this view: ${duration(seconds * 1000)} to ${clock(summary.end_ms)}, in whole seconds`;
  }

  changed(patch) {
    if ("theme" in patch) this.dress();
    if ("endMs" in patch) {
      this.attend();
      this.connection();
    }
    if ("endMs" in patch || "spanMs" in patch) this.askNumbers();
    if ("window" in patch) this.showNumbers();
    if (this.ready) this.paintScale();
    this.controls.show();
    this.draw({ overview: true });
  }

  dress() {
    const auto = this.light.matches ? "light" : "dark";
    document.documentElement.dataset.theme = this.view.theme === "auto" ? auto : this.view.theme;
    if (this.ready) this.paintScale();
    this.draw({ overview: true });
  }

  /** Show the state of the connection; without arguments, the last known one. */
  connection(name = this.last?.name, detail = this.last?.detail) {
    this.last = { name, detail };
    const words = { connecting: "Connecting", open: "Live", lost: "Connection lost", closed: "Paused" };
    const held = this.view.held && name !== "lost";
    const state = held ? "held" : name === "open" ? "live" : name;
    const text = held ? "Held" : (words[name] ?? UNKNOWN);
    byId("state").dataset.state = state;
    byId("state-words").textContent = text;
    const message = byId("message");
    const pauseMs = Math.max(1, Math.round((detail?.pauseMs ?? 0) / 1000)) * 1000;
    if (state === "lost") this.say(`${detail.reason}; trying again in ${duration(pauseMs)}.`, true);
    else if (name === "open" && message.dataset.lost) message.hidden = true;
  }

  say(text, lost = false) {
    const message = byId("message");
    clearTimeout(this.quiet);
    message.textContent = text.charAt(0).toUpperCase() + text.slice(1);
    message.hidden = false;
    if (lost) message.dataset.lost = "yes";
    else {
      delete message.dataset.lost;
      this.quiet = setTimeout(() => (message.hidden = true), 8_000);
    }
  }
}

document.documentElement.dataset.script = "yes";
window.ibpulse = new Live();
