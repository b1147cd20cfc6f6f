// Shows the sampler's health in one line.

import { element } from "./elements.js";
import { duration, percent } from "./format.js";

const KEPT_BOUND = 0.99;
const HEARTBEAT_BOUND_SECONDS = 2;

const share = (s) => s.ticks / Math.max(1, s.ticks + s.missed_ticks);

/** Why samples are missing, as far as it is known, and what to do; empty if few are. */
function reason(s) {
  if (share(s) >= KEPT_BOUND) return "";
  if (s.throttled_periods) return "a CPU limit throttles the sampler; remove the limit";
  const slow = s.tick_duration_p99_bound_seconds;
  if (slow === null || slow > s.interval_seconds) return "reads take longer than the interval; see ibpulse doctor";
  return "the sampler gets the CPU too late; the node is busy, see ibpulse doctor";
}

/** Name, value and tooltip of the items that are always shown. */
function always(s) {
  const kept = share(s);
  const bound = (seconds, beyond) => (seconds === null ? beyond : `≤ ${duration(seconds * 1000)}`);
  return [
    {
      name: "Samples captured",
      value: percent(kept, kept < KEPT_BOUND ? 1 : 3),
      title:
        "Fraction of scheduled samples that were taken since the start of the history; the others are missing.",
      bad: kept < KEPT_BOUND,
    },
    {
      name: "wake-up delay",
      value: bound(s.lateness_p99_bound_seconds, "more than 500 ms"),
      title: "Delay between the scheduled and the actual start of a sample, 99th percentile.",
    },
    {
      name: "read time",
      value: bound(s.tick_duration_p99_bound_seconds, "more than 1 s"),
      title: "Time to read all ports, 99th percentile.",
    },
    { name: "interval", value: duration(s.interval_seconds * 1000), title: "Time between two samples." },
    { name: "read errors", value: s.read_errors, title: "Failed reads of byte counters; each is a missing sample." },
  ];
}

/** The problems, each shown only if present. */
function faults(s) {
  const silent = s.heartbeat_age_seconds === null || s.heartbeat_age_seconds > HEARTBEAT_BOUND_SECONDS;
  const age = s.heartbeat_age_seconds === null ? "ever" : duration(s.heartbeat_age_seconds * 1000);
  return [
    { name: "missing because", value: reason(s), title: "The most likely reason of those that the sampler knows.", bad: true },
    {
      name: "no heartbeat for",
      value: silent && age,
      title: "The sampler is not responding; see the log.",
      bad: true,
    },
    {
      name: "samples merged",
      value: s.implausible_samples,
      title: "Samples above the line rate, because a counter or its read was late; each is merged with samples before it.",
    },
    { name: "restarts", value: s.restarts, title: "Number of times a sampler process was restarted." },
    {
      name: "quarantined",
      value: s.quarantined_devices.join(", "),
      title: "Reads of these devices hung; a separate process retries them.",
      bad: true,
    },
    {
      name: "throttled periods",
      value: s.throttled_periods,
      title: "The container's CPU limit causes missing samples; remove it.",
      bad: true,
    },
    {
      name: "seconds not aggregated",
      value: s.skipped_seconds,
      title: "Aggregation fell behind by more than the history.",
      bad: true,
    },
  ].filter((line) => line.value);
}

/** Show the sampler's part of an event `summary`. */
export function showHealth(list, second) {
  list.replaceChildren();
  element("li", "title", list).textContent = "Sampler";
  for (const { name, value, title, bad } of [...always(second.sampler), ...faults(second.sampler)]) {
    const item = element("li", "", list);
    item.title = title;
    item.dataset.tone = bad ? "bad" : "";
    item.append(`${name} `);
    element("b", "", item).textContent = String(value);
  }
}
