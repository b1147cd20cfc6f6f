// Marks for events above the picture: where they are, and what happened there.

import { apiAddress } from "./address.js";
import { addCapture, addTrace } from "./capture_requests.js";
import { element, put } from "./elements.js";
import { clock, duration } from "./format.js";

export const MERGE_PIXELS = 22;
const MOST_EVENTS = 2_000;
const MOST_LINES = 6;
const LEAVE_MS = 250;
const BAD = ["link-down", "link-flap", "disappeared", "unreadable", "quarantined", "counter-reset", "counter-jump"];
const GOOD = ["link-up", "appeared", "readable", "released"];
// shape and colour both tell the sorts apart
export const SIGNS = { bad: "▼", good: "▲", capture: "●", other: "◆" };

export function sortOf(kind) {
  if (kind === "capture") return "capture";
  return BAD.includes(kind) ? "bad" : GOOD.includes(kind) ? "good" : "other";
}

/** What happened, with the port or device. */
export function sentenceOf({ kind, subject, text }) {
  const words = text || kind;
  return words.includes(subject) ? words : `${subject}: ${words}`;
}

/** The events of the log, each once, oldest first. */
export class Events {
  #found = new Map();
  list = [];

  add(events) {
    // two jobs may begin at once
    for (const each of events) this.#found.set(`${each.time_ms} ${each.kind} ${each.subject} ${each.text}`, each);
    this.list = [...this.#found.values()].sort((a, b) => a.time_ms - b.time_ms).slice(-MOST_EVENTS);
    if (this.list.length < this.#found.size) this.#found = new Map([...this.#found].slice(-MOST_EVENTS));
  }
}

/** Merge events that begin within `mergeMs` of the first of them: {ms, sort, events} each. */
export function grouped(events, mergeMs) {
  const groups = [];
  for (const each of events) {
    const last = groups.at(-1);
    if (last && each.time_ms - last.ms < mergeMs) last.events.push(each);
    else groups.push({ ms: each.time_ms, events: [each] });
  }
  for (const group of groups) {
    const sorts = group.events.map((each) => sortOf(each.kind));
    group.sort = ["bad", "capture", "good", "other"].find((sort) => sorts.includes(sort));
  }
  return groups;
}

export class Marks {
  #lane;
  #card;
  #doubt;
  #groups = [];
  #made = null; // the list and the merging distance of #groups
  #buttons = new Map();
  #view = [];
  #open = null;
  #leaving = 0;
  /** More about the time of an event, as text. */
  remark = () => "";

  constructor(lane, card, doubt) {
    [this.#lane, this.#card, this.#doubt] = [lane, card, doubt];
    card.addEventListener("pointerenter", () => clearTimeout(this.#leaving));
    card.addEventListener("pointerleave", () => this.#leave());
    card.addEventListener("focusout", (event) => {
      if (!card.contains(event.relatedTarget)) this.close();
    });
    document.addEventListener("pointerdown", (event) => {
      if (!lane.contains(event.target) && !card.contains(event.target)) this.close();
    });
  }

  /** Place the marks of a span over `width` pixels. */
  place(events, span, width) {
    const perPixel = (span.toMs - span.fromMs) / Math.max(1, width);
    // 0.1 % of tolerance: the span of a moving view is not quite constant
    const mergeMs = Number((MERGE_PIXELS * perPixel).toPrecision(3));
    if (this.#made?.list !== events.list || this.#made.mergeMs !== mergeMs) {
      this.#groups = grouped(events.list, mergeMs);
      this.#made = { list: events.list, mergeMs };
    }
    const seen = this.#groups.filter((group) => group.ms >= span.fromMs && group.ms <= span.toMs);
    this.#arrange(seen);
    this.#view = [span, width, perPixel];
    for (const group of seen) {
      this.#buttons.get(group.ms).style.transform = `translateX(${(group.ms - span.fromMs) / perPixel}px)`;
    }
    this.#follow(...this.#view);
  }

  /** One button for each group, in the order of time; buttons that stay keep the focus. */
  #arrange(groups) {
    const wanted = new Set(groups.map((group) => group.ms));
    for (const [ms, button] of this.#buttons) {
      if (wanted.has(ms)) continue;
      button.remove();
      this.#buttons.delete(ms);
    }
    groups.forEach((group, index) => {
      let button = this.#buttons.get(group.ms);
      if (!button) this.#buttons.set(group.ms, (button = this.#button(group.ms)));
      if (this.#lane.children[index] !== button) this.#lane.insertBefore(button, this.#lane.children[index] ?? null);
      const count = group.events.length;
      if (button.dataset.count === String(count)) return;
      button.dataset.count = count;
      button.dataset.sort = group.sort;
      put(button, count > 1 ? String(count) : SIGNS[group.sort]);
      const what = count > 1 ? `${count} events` : group.events[0].text;
      button.setAttribute("aria-label", `${clock(group.ms)}: ${what}`);
    });
  }

  #button(ms) {
    const button = document.createElement("button");
    button.className = "mark-event";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-controls", this.#card.id);
    button.addEventListener("pointerenter", () => this.#show(ms));
    button.addEventListener("pointerleave", () => this.#leave());
    button.addEventListener("focus", () => this.#show(ms));
    button.addEventListener("blur", (event) => {
      if (!this.#card.contains(event.relatedTarget)) this.close();
    });
    button.addEventListener("click", () => {
      this.#show(ms);
      (this.#card.querySelector("a") ?? this.#card).focus();
    });
    return button;
  }

  #show(ms) {
    clearTimeout(this.#leaving);
    if (this.#open === ms) return;
    this.close();
    const group = this.#groups.find((each) => each.ms === ms);
    if (!group) return;
    this.#open = ms;
    this.#buttons.get(ms).setAttribute("aria-expanded", "true");
    this.#card.replaceChildren();
    for (const each of group.events.slice(0, MOST_LINES)) this.#line(each);
    if (group.events.length > MOST_LINES) {
      const more = element("p", "", this.#card);
      const link = element("a", "", more);
      const last = Math.ceil(group.events.at(-1).time_ms) + 1;
      link.href = `${apiAddress("events")}?from=${Math.floor(ms)}&to=${last}`;
      link.textContent = `All ${group.events.length} events`;
    }
    this.#card.hidden = this.#doubt.hidden = false;
    this.#follow(...this.#view);
  }

  #line(event) {
    const line = element("p", "", this.#card);
    element("b", "", line).textContent = clock(event.time_ms, 2);
    const doubt = event.uncertainty_ms >= 1 ? ` or up to ${duration(event.uncertainty_ms)} earlier` : "";
    element("span", "soft", line).textContent = `${doubt}${this.remark(event)}`;
    line.append(document.createElement("br"), sentenceOf(event));
    if (event.kind === "capture" && event.details.name) {
      line.append(" ");
      addCapture(line, event.details.name, "Download", event.node);
      addTrace(line, event.details.name, event.node);
    }
  }

  /** Move the open card and the band of uncertainty with the picture. */
  #follow(span, width, perPixel) {
    if (this.#open === null) return;
    const group = this.#groups.find((each) => each.ms === this.#open);
    if (!group || !this.#buttons.has(this.#open)) return this.close();
    const x = (group.ms - span.fromMs) / perPixel;
    const left = Math.max(0, Math.min(width - this.#card.offsetWidth, x - this.#card.offsetWidth / 2));
    this.#card.style.transform = `translateX(${left}px)`;
    const begin = Math.max(0, x - Math.max(...group.events.map((each) => each.uncertainty_ms)) / perPixel);
    const end = Math.min(width, (group.events.at(-1).time_ms - span.fromMs) / perPixel);
    this.#doubt.style.transform = `translateX(${begin}px)`;
    this.#doubt.style.width = `${Math.max(1, end - begin)}px`;
  }

  #leave() {
    clearTimeout(this.#leaving);
    this.#leaving = setTimeout(() => {
      const focused = document.activeElement;
      if (!this.#card.contains(focused) && focused !== this.#buttons.get(this.#open)) this.close();
    }, LEAVE_MS);
  }

  close() {
    if (this.#open === null) return;
    this.#buttons.get(this.#open)?.setAttribute("aria-expanded", "false");
    this.#open = null;
    this.#card.hidden = this.#doubt.hidden = true;
  }
}
