// What all live pages share: the stream, the state of the connection, theme and messages.

import { NAME } from "./address.js";
import { UNKNOWN, duration } from "./format.js";
import { helpButton } from "./help.js";
import { showNotices } from "./notices.js";
import { Page } from "./page.js";
import { findDowns } from "./states.js";
import { Stream } from "./stream.js";

const ABOUT_MISSING =
  "Striped samples were not measured, and are never counted as zero: a sample was missed, a read failed or the port is " +
  "unreadable, a device hung or disappeared, the daemon did not run, or the time is before the history. Point at them " +
  "to read which. Plain dark columns are still to be loaded or still to come.";
const LATER = "Their samples are loaded when needed.";
const byId = (id) => document.getElementById(id);

/** A page has `statistics` and `controls`, and says with `newSecond(summary)` what happens once a second. */
export class LivePage extends Page {
  constructor(view, rails) {
    super(view, rails);
    this.stream = new Stream(
      {
        event: (name, data) => this.receive(name, data),
        state: (name, detail) => this.connection(name, detail),
      },
      () => this.address("stream"),
    );
  }

  /** Connect everything, and show the first view. */
  begin() {
    this.view.listen((patch) => this.changed(patch));
    this.light = matchMedia("(prefers-color-scheme: light)");
    this.light.addEventListener("change", () => this.dress());
    addEventListener("hashchange", () => {
      this.view.read();
      this.changed({ endMs: this.view.endMs });
    });
    document.addEventListener("visibilitychange", () => this.attend());
    addEventListener("online", () => this.stream.hurry());
    byId("host").textContent = NAME;
    helpButton(byId("no-data"), "missing data", ABOUT_MISSING);
    byId("host").title = location.host;
    document.title = `${NAME} · ibpulse`;
    this.dress();
    this.attend();
    this.statistics.ask();
  }

  /** Run the stream only while the newest samples are visible; a held view needs its first messages alone. */
  attend() {
    const begun = this.ready && this.store.newestMs > 0 && this.second;
    const looking = !document.hidden && (!this.view.held || !begun);
    if (looking) this.stream.start();
    else this.stream.stop();
    if (!document.hidden) this.draw({ overview: true });
  }

  receive(name, data) {
    if (name === "ports") this.layOut(data);
    else if (name === "batch") this.add(data);
    else if (name === "summary") this.newSecond(data);
    else if (name === "events") this.happen(data.events);
    else if (name === "dropped") this.say(`This page was too slow: ${data.events} events were dropped. ${LATER}`);
  }

  layOut(layout) {
    if (this.describe(layout)) this.controls.choice();
    this.controls.show();
    this.paintScale();
    showNotices(byId("notices"), this);
    byId("simulated").hidden = !layout.simulated;
    // a gateway serves the page of a node that may have another version
    const serving = layout.gateway_version ?? layout.version;
    const mine = document.documentElement.dataset.version;
    if (serving !== mine) this.say("The server now runs another version; reload this page.");
  }

  /** The usual span depends on the width of the picture. */
  resized() {
    this.controls?.show();
    super.resized();
  }

  happen(events) {
    this.events.add(events);
    findDowns(this.store.layout, this.events.list);
    this.draw();
  }

  add(batch) {
    super.add(batch);
    if (!this.view.held) return;
    // the first batch tells where the history begins
    showNotices(byId("notices"), this);
    this.attend();
  }

  changed(patch) {
    this.store.fine = this.view.held;
    if ("theme" in patch) this.dress();
    if ("endMs" in patch) {
      this.attend();
      this.connection();
    }
    if ("endMs" in patch || "spanMs" in patch) this.statistics.ask();
    if ("window" in patch || "unit" in patch) this.statistics.show();
    if (this.ready) {
      this.paintScale();
      showNotices(byId("notices"), this);
    }
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
    const text = held ? "Held" : detail?.refused ? "Unavailable" : (words[name] ?? UNKNOWN);
    byId("state").dataset.state = state;
    byId("state-words").textContent = text;
    // what was refused from the first is not there
    if (state === "lost") document.documentElement.toggleAttribute("data-empty", !this.ready && Boolean(detail.refused));
    else if (name === "open") document.documentElement.removeAttribute("data-empty");
    const message = byId("message");
    const pauseMs = Math.max(1, Math.round((detail?.pauseMs ?? 0) / 1000)) * 1000;
    if (state === "lost") this.say(`${detail.reason.replace(/\.$/, "")}; trying again in ${duration(pauseMs)}.`, true);
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
