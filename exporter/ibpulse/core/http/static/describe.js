// The view in words, for those who cannot see the picture.

import { clock, duration, fullTime, rate } from "./format.js";
import { railLabels } from "./states.js";

const MOST_EVENTS = 3;

/** Sentences on the visible span: its time, its rows, rails with a problem, events, and the selection. */
export function describeView(page) {
  const { span, view, store, shown, events, momentMs, numbers } = page;
  const length = duration(span.toMs - span.fromMs);
  const time = view.held ? `Held view of ${length} to ${fullTime(span.toMs)}.` : `Live view of the last ${length}.`;
  const sentences = [time, `${shown.length} row${shown.length === 1 ? "" : "s"}.`, ...ratesOf(page)];
  const { labels } = railLabels(store.layout, momentMs, numbers);
  for (const [word, ports] of labels) sentences.push(`${word}: ${ports.slice(0, 8).join(", ")}${ports.length > 8 ? ` and ${ports.length - 8} more` : ""}.`);
  if (!labels.length) sentences.push("No rail has a problem.");
  const seen = events.list.filter((each) => each.time_ms >= span.fromMs && each.time_ms <= span.toMs);
  if (seen.length) {
    const last = seen.slice(-MOST_EVENTS).map((each) => `${clock(each.time_ms)} ${each.text || each.kind}`);
    sentences.push(`${seen.length} event${seen.length === 1 ? "" : "s"}: ${last.join("; ")}.`);
  }
  if (view.select) sentences.push(`Selected: ${duration(view.select.toMs - view.select.fromMs)} from ${clock(view.select.fromMs, 2)}.`);
  return sentences.join(" ");
}

/** The rates of a live view; those of a held one are in the cards. */
function ratesOf({ view, second, statistics }) {
  const window = second?.node?.windows?.[statistics?.window];
  if (view.held || !window || window.transmit_bytes_per_second === null) return [];
  const mean = window.transmit_bytes_per_second + window.receive_bytes_per_second;
  return [`Mean of the last ${statistics.window}: ${rate(mean, view.unit)}, peak ${rate(window.bandwidth_peak_bytes_per_second, view.unit)}.`];
}
