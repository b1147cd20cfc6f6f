// How the sampling goes, in a line: a measuring instrument shows its own faults first. It must not judge the traffic.

import { element } from "./elements.js";
import { duration, percent } from "./format.js";

const KEPT_BOUND = 0.99;
const HEARTBEAT_BOUND_SECONDS = 2;

/** Name, value and title of what is always told. */
function always(s) {
  const kept = s.ticks / Math.max(1, s.ticks + s.missed_ticks);
  const bound = (seconds, beyond) => (seconds === null ? beyond : `≤ ${duration(seconds * 1000)}`);
  return [
    {
      name: "Ticks kept",
      value: percent(kept, 3),
      title:
        "Share of the sampling instants at which the ports were read, since the history began. The others are holes.",
      bad: kept < KEPT_BOUND,
    },
    {
      name: "late by",
      value: bound(s.lateness_p99_bound_seconds, "more than 500 ms"),
      title: "99 of 100 samples began no later after their instant than this.",
    },
    {
      name: "reading took",
      value: bound(s.tick_duration_p99_bound_seconds, "more than 1 s"),
      title: "Time to read all ports, 99 of 100 times.",
    },
    { name: "every", value: duration(s.interval_seconds * 1000), title: "Time between two samples." },
    { name: "read errors", value: s.read_errors, title: "Reads of byte counters that failed; each is a hole." },
  ];
}

/** What is told when it is so. */
function faults(s) {
  const silent = s.heartbeat_age_seconds === null || s.heartbeat_age_seconds > HEARTBEAT_BOUND_SECONDS;
  const age = s.heartbeat_age_seconds === null ? "ever" : duration(s.heartbeat_age_seconds * 1000);
  return [
    {
      name: "no sign of life for",
      value: silent && age,
      title: "The sampler does not answer; see the log.",
      bad: true,
    },
    { name: "restarts", value: s.restarts, title: "Times a sampler process was started again." },
    {
      name: "sampled apart",
      value: s.quarantined_devices.join(", "),
      title: "A read of these devices hung; a process of its own tries them.",
      bad: true,
    },
    {
      name: "throttled periods",
      value: s.throttled_periods,
      title: "The container's CPU limit costs samples: remove it.",
      bad: true,
    },
    {
      name: "seconds not aggregated",
      value: s.skipped_seconds,
      title: "Aggregation fell behind by more than the history holds.",
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
