// The states of ports at a moment of the history, and the words for them.

import { clock } from "./format.js";

export const DISAPPEARED = "disappeared";
const PROBLEMS = {
  unreadable: "unreadable",
  hung: "hung",
  "no-counters": "no counters",
  disappeared: DISAPPEARED,
  "no-answer": "no answer",
  refused: "refused",
  "bad-answer": "bad answer",
  gone: "gone",
};
/** Words that mean that a port, or a node of a job, has a problem, the worst first. */
const BAD_WORDS = [DISAPPEARED, "gone", "no answer", "refused", "bad answer", "unreadable", "hung", "no counters"];
/** Words for what may be as it should be. */
export const MILD_WORDS = ["idle", "slow"];
const SENTENCES = {
  [DISAPPEARED]: "Disappeared",
  unreadable: "Cannot be read",
  hung: "A read does not return",
  "no counters": "No byte counters",
  "no answer": "No answer from",
  refused: "Access refused by",
  "bad answer": "Unusable answer from",
  gone: "No longer listed by the sources of nodes",
};
const MOST_NAMES = 8;

/**
 * Prepare the ports of a layout: `moments` are the states over the history, oldest first, each with the last data rate
 * that was in force while the link was ACTIVE. `owners` are the jobs that had the port.
 */
export function prepare(layout) {
  for (const port of layout.ports) {
    port.owners = (layout.jobs ?? []).filter((each) => each.ports.includes(port.port));
    const states = port.states?.length ? port.states : [{ ...port, from_ms: -Infinity }];
    let rate = states.find((each) => each.rate_bytes_per_second)?.rate_bytes_per_second;
    let { rail, role } = port;
    port.moments = states.map((each, index) => {
      rate = each.rate_bytes_per_second ?? rate ?? port.rate_bytes_per_second;
      [rail, role] = [each.rail ?? rail, each.role ?? role];
      return {
        fromMs: index ? each.from_ms : -Infinity,
        state: each.state,
        active: each.active ?? false,
        rate: rate ?? null,
        rail,
        role,
        problem: each.problem ?? "",
        downUntilMs: -Infinity,
      };
    });
  }
  return layout;
}

/**
 * Set until when each state is certain to be one of a link that is down. The next state is noticed up to a second late,
 * and in that time silence may as well be a pause of the traffic.
 */
export function findDowns(layout, events) {
  for (const { port, moments } of layout.ports) {
    const own = events.filter((each) => each.subject === port);
    moments.forEach((moment, index) => {
      const next = moments[index + 1]?.fromMs ?? Infinity;
      const change = own.find((each) => Math.abs(each.time_ms - next) <= 2 * layout.interval_ms);
      const down = !moment.active && moment.state !== DISAPPEARED;
      moment.downUntilMs = down ? next - (change?.uncertainty_ms ?? 0) : -Infinity;
    });
  }
}

/** The state of a port at a time; `Infinity` is now. */
export function stateAt(port, ms) {
  const { moments } = port;
  let index = moments.length - 1;
  while (index > 0 && moments[index].fromMs > ms) index -= 1;
  return moments[index];
}

/** The jobs that have a port at a time; `Infinity` is now. */
export function jobsAt(port, ms) {
  return port.owners.filter((each) => {
    const ended = each.to_ms !== null && each.to_ms <= ms;
    return (each.from_ms ?? -Infinity) <= ms && !ended;
  });
}

/** A job in words: its id, and its name if that is known. */
export function jobWords({ job_id, name }) {
  return name ? `${job_id} (${name})` : job_id;
}

/** The jobs that have the rails at a time. */
export function railJobs(layout, ms) {
  const rails = layout.ports.filter((port) => stateAt(port, ms).rail && knownAt(port, ms));
  return [...new Set(rails.flatMap((port) => jobsAt(port, ms)))];
}

/** The states of a port within a span, oldest first. */
export function statesWithin(port, fromMs, toMs) {
  return port.moments.filter((each, index, all) => each.fromMs < toMs && (all[index + 1]?.fromMs ?? Infinity) > fromMs);
}

/** Whether a port existed at a time, or had existed before. */
export function knownAt(port, ms) {
  return port.moments.some((each) => each.fromMs <= ms && each.state !== DISAPPEARED);
}

/** The label of a port, empty if it is well; `numbers` are its members `rail_idle` and `rail_slow`, if known. */
export function label(state, numbers) {
  if (state.state === DISAPPEARED) return DISAPPEARED;
  if (state.problem) return problemWord(state.problem);
  if (!state.active) return state.state.toLowerCase() || "not active";
  if (numbers?.rail_idle) return "idle";
  return numbers?.rail_slow ? "slow" : "";
}

/** A problem in a word or two. */
export function problemWord(problem) {
  return PROBLEMS[problem] ?? problem;
}

/** The number of rails at a time, and [label, names] of those that are not well, the worst first. */
export function railLabels(layout, ms, numbers) {
  const found = new Map((numbers ?? []).map((each) => [each.port, each]));
  const rails = layout.ports.filter((port) => stateAt(port, ms).rail && knownAt(port, ms));
  const labels = new Map();
  for (const port of rails) {
    const word = label(stateAt(port, ms), found.get(port.port));
    if (word) labels.set(word, [...(labels.get(word) ?? []), port.port]);
  }
  const rank = (word) => (BAD_WORDS.includes(word) ? BAD_WORDS.indexOf(word) - 9 : 1 + MILD_WORDS.indexOf(word));
  return { count: rails.length, labels: [...labels].sort((a, b) => rank(a[0]) - rank(b[0])) };
}

/** The time since which a port is in a state, as text; empty if that began before the history. */
export function since(state) {
  return Number.isFinite(state.fromMs) ? `since ${clock(state.fromMs)}` : "";
}

/** Sentences on the ports that have a problem or, as rails, are down at a time: one for each kind of problem. */
export function troubles(layout, ms) {
  const kinds = new Map();
  for (const port of layout.ports.filter((each) => knownAt(each, ms))) {
    const state = stateAt(port, ms);
    const word = label(state);
    if (!word || (!BAD_WORDS.includes(word) && !state.rail)) continue;
    const kind = SENTENCES[word] ?? `Link ${word}`;
    const text = `${port.port} ${since(state)}`.trim();
    kinds.set(kind, [...(kinds.get(kind) ?? []), text]);
  }
  return [...kinds].map(([kind, names]) => {
    const rest = names.length - MOST_NAMES;
    return `${kind}: ${names.slice(0, MOST_NAMES).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}.`;
  });
}
