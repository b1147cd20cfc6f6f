// The list of a node's events and captures, and the button that takes a capture.

import { apiAddress } from "./address.js";
import { askCaptures, fillTable } from "./capture_requests.js";
import { element } from "./elements.js";
import { clock, duration, fullTime, megabytes } from "./format.js";
import { SIGNS, sortOf } from "./marks.js";

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

  constructor(page) {
    this.#page = page;
    this.#details = element("details", "", document.querySelector(".more"));
    this.#details.id = "happenings";
    element("summary", "", this.#details).textContent = hasCaptures() ? "Events and captures" : "Events";
    this.#list = element("div", "", this.#details);
    this.#details.addEventListener("toggle", () => this.show());
    // the page at a gateway, which takes captures of jobs alone, has none
    const button = byId("capture");
    if (!button) return;
    button.hidden = !hasCaptures();
    button.addEventListener("click", () => this.take());
  }

  /** Fill the list if it is open: the newest first. */
  async show() {
    if (!this.#details.open) return;
    const captures = hasCaptures() ? await askCaptures("captures") : { captures: [] };
    const sizes = new Map((captures.captures ?? []).map((each) => [each.name, each.size_bytes]));
    const events = this.#page.events.list;
    const listed = new Set(events.map((each) => each.details?.name));
    // those of before the events
    const older = (captures.captures ?? []).filter((each) => !listed.has(each.name)).map(asEvent);
    const rows = [...events, ...older].sort((a, b) => b.time_ms - a.time_ms);
    this.#list.replaceChildren();
    if (captures.problem) element("p", "soft", this.#list).textContent = captures.problem;
    if (!rows.length) element("p", "soft", this.#list).textContent = "No event is known yet.";
    else fillTable(this.#list, "Events and captures", ["Time", "What happened", "Capture", "View"], rows.slice(0, MOST_ROWS).map((each) => this.#cells(each, sizes)));
    if (rows.length > MOST_ROWS) element("p", "soft", this.#list).textContent = `The newest ${MOST_ROWS} of ${rows.length}.`;
  }

  #cells(event, sizes) {
    const { time_ms: ms, uncertainty_ms: doubt, kind, text, details } = event;
    const when = doubt >= 1 ? `${fullTime(ms)}, or up to ${duration(doubt)} earlier` : fullTime(ms);
    return [
      when,
      (cell) => {
        const sign = element("span", "sign", cell);
        Object.assign(sign, { textContent: SIGNS[sortOf(kind)], ariaHidden: "true" });
        sign.dataset.sort = sortOf(kind);
        cell.append(` ${text || kind}`);
      },
      (cell) => details?.name && addDownload(cell, details.name, sizes.get(details.name)),
      (cell) => ms > this.#page.reach.fromMs && this.#showButton(cell, ms),
    ];
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
function asEvent({ name, trigger_ms: ms, reason }) {
  return { time_ms: ms, uncertainty_ms: 0, kind: "capture", text: `capture: ${reason}`, details: { name } };
}

/** Append a link that downloads a capture; `size` is undefined while it is written or after it was deleted. */
export function addDownload(holder, name, size) {
  if (size === undefined) return holder.append("no file");
  const link = element("a", "", holder);
  const words = { href: apiAddress(`captures/${encodeURIComponent(name)}`), download: name };
  return Object.assign(link, words, { textContent: `Download (${megabytes(size)})` });
}
