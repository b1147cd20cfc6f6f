// The list of a node's events and captures, and the button that takes a capture.

import { apiAddress } from "./address.js";
import { addCapture, addTrace, askCaptures, fillTable } from "./capture_requests.js";
import { element } from "./elements.js";
import { clock, duration, fullTime, megabytes } from "./format.js";
import { Events, SIGNS, sentenceOf, sortOf } from "./marks.js";

const LAST = "24h";
const MOST_ROWS = 200;
// around an event in the view that shows it
const BEFORE_MS = 2_000;
const AFTER_MS = 3_000;
const WRITTEN_MS = 2_000;
const PATIENCE = 15;
const byId = (id) => document.getElementById(id);

/** Whether the page lists captures among its links, as it does if the flight recorder is on. */
export function hasCaptures() {
  return document.querySelector(`.links a[href="${apiAddress("captures")}"]`) !== null;
}

export class Happenings {
  #page;
  #details;
  #list;
  #busy = false;
  #day = new Events();
  #problem = "";

  constructor(page) {
    this.#page = page;
    this.#details = element("details", "", document.querySelector(".more"));
    this.#details.id = "happenings";
    element("summary", "", this.#details).textContent = hasCaptures() ? "Events and captures" : "Events";
    this.#list = element("div", "", this.#details);
    this.#details.addEventListener("toggle", () => this.#open());
    // the page at a gateway, which takes captures of jobs alone, has none
    const button = byId("capture");
    if (!button) return;
    button.hidden = !hasCaptures();
    button.addEventListener("click", () => this.take());
  }

  /** Ask for the events of the last day, which are known longer than their samples, and show them. */
  async #open() {
    if (!this.#details.open) return;
    const found = await askCaptures(`events?last=${LAST}`);
    this.#problem = found.problem ?? "";
    this.#day = new Events();
    this.#day.add([...(found.events ?? []), ...this.#page.events.list]);
    await this.show();
  }

  add(events) {
    this.#day.add(events);
    this.show();
  }

  /** Fill the list if it is open: the newest first. */
  async show() {
    if (!this.#details.open) return;
    const captures = hasCaptures() ? await askCaptures("captures") : { captures: [] };
    const sizes = new Map((captures.captures ?? []).map((each) => [each.name, each.size_bytes]));
    const events = this.#day.list;
    const listed = new Set(events.map((each) => each.details?.name));
    // those of before the events
    const older = (captures.captures ?? []).filter((each) => !listed.has(each.name)).map(asEvent);
    const rows = [...events, ...older].sort((a, b) => b.time_ms - a.time_ms);
    const scrolled = this.#list.querySelector(".wide")?.scrollTop ?? 0;
    this.#list.replaceChildren();
    for (const problem of new Set([this.#problem, captures.problem])) {
      if (problem) element("p", "soft", this.#list).textContent = problem;
    }
    if (!rows.length) {
      element("p", "soft", this.#list).textContent = "No event is known of the last 24 hours.";
      return;
    }
    const shown = rows.slice(0, MOST_ROWS).map((each) => this.#cells(each, sizes));
    fillTable(this.#list, "Events and captures", ["Time", "What happened", "Capture", "View"], shown);
    this.#list.querySelector(".wide").scrollTop = scrolled;
    const foot = element("p", "soft", this.#list);
    foot.textContent = `${rows.length > MOST_ROWS ? `The newest ${MOST_ROWS} of ${rows.length}. ` : ""}Events of the last 24 hours`;
    foot.append(hasCaptures() ? ", and all captures that are kept. " : ". ");
    Object.assign(element("a", "", foot), { href: apiAddress(`events?last=${LAST}`), textContent: "As JSON" });
  }

  #cells(event, sizes) {
    const { time_ms: ms, uncertainty_ms: doubt, kind, details } = event;
    const when = doubt >= 1 ? `${fullTime(ms)}, or up to ${duration(doubt)} earlier` : fullTime(ms);
    return [
      when,
      (cell) => {
        const sign = element("span", "sign", cell);
        Object.assign(sign, { textContent: SIGNS[sortOf(kind)], ariaHidden: "true" });
        sign.dataset.sort = sortOf(kind);
        cell.append(` ${sentenceOf(event)}`);
      },
      (cell) => details?.name && addDownload(cell, details.name, sizes.get(details.name)),
      (cell) => this.#addView(cell, ms),
    ];
  }

  #addView(cell, ms) {
    const page = this.#page;
    if (!page.ready || !page.store.newestMs) return;
    const { fromMs } = page.reach;
    if (ms > fromMs) return this.#showButton(cell, ms);
    const words = { textContent: "no samples", title: `The history of samples begins at ${clock(fromMs)}.` };
    Object.assign(element("span", "soft", cell), words);
  }

  #showButton(cell, ms) {
    const button = element("button", "", cell);
    button.textContent = "Show";
    button.setAttribute("aria-label", `Show ${clock(ms)}`);
    button.addEventListener("click", () => {
      this.#page.controls.showSpan(ms - BEFORE_MS, ms + AFTER_MS);
      byId("waterfall").focus();
      byId("waterfall").scrollIntoView({ block: "nearest" });
    });
  }

  /** Take a capture of what is around now; the server may refuse it, and says why. */
  async take() {
    if (this.#busy) return;
    this.#busy = true;
    byId("save-menu").open = false;
    this.#page.say("Taking a capture.");
    const headers = { "Content-Type": "application/json" };
    const taken = await askCaptures("captures", { method: "POST", headers, body: JSON.stringify({ reason: "live page" }) });
    this.#busy = false;
    if (taken.problem) return this.#page.say(`No capture was taken. ${taken.problem}`);
    const waits = Math.max(0, taken.ready_ms - taken.trigger_ms);
    this.#page.say(`Capturing the time around ${clock(taken.trigger_ms)}; the file is ready in ${duration(Math.max(1000, waits))}.`);
    setTimeout(() => this.#follow(taken, PATIENCE), waits + WRITTEN_MS);
    return undefined;
  }

  /** Wait until the file is there. */
  async #follow(taken, attempts) {
    const found = await askCaptures("captures");
    const written = found.captures?.some((each) => each.name === taken.name);
    if (!written && attempts) return setTimeout(() => this.#follow(taken, attempts - 1), WRITTEN_MS);
    const problem = found.problem || "The capture is not written yet.";
    this.#page.say(written ? `Captured the time around ${clock(taken.trigger_ms)}; see “Events and captures” below.` : problem);
    return this.show();
  }
}

/** A capture without its event. */
function asEvent({ name, trigger_ms: ms, reason, ports }) {
  const text = `capture of ${reason}${ports ? `, ${ports}` : ""}`;
  return { time_ms: ms, uncertainty_ms: 0, kind: "capture", subject: "", text, details: { name } };
}

/** Append links that download a capture; `size` is undefined while it is written or after it was deleted. */
export function addDownload(holder, name, size) {
  if (size === undefined) return holder.append("no file");
  const link = addCapture(holder, name, `Download (${megabytes(size)})`);
  addTrace(holder, name);
  return link;
}
