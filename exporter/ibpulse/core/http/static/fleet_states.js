// The states of nodes and of jobs on the home page of a gateway: a word, how bad it is, and since when.

import { elapsed, namesWords } from "./format.js";
import { trouble } from "./job_rows.js";
import { problemWord } from "./states.js";

/** What a node can be, the worst first: the name of its filter, and how bad that is. */
export const KINDS = [
  { name: "lost", words: () => "no answer", tone: "bad", is: (node) => Boolean(node.problem), since: "since_ms" },
  { name: "down", words: () => "rail down", tone: "bad", is: (node) => node.rails_down.length, since: "down_since_ms" },
  { name: "idle", words: () => "rail idle", tone: "warn", is: (node) => node.rails_idle.length, since: "idle_since_ms" },
  { name: "slow", words: () => "rail slow", tone: "warn", is: (node) => node.rails_slow.length, rare: true },
  { name: "clock", words: () => "clock unsure", tone: "", is: hasNoClock, rare: true },
  { name: "waiting", words: () => "not asked yet", tone: "", is: isWaiting, rare: true },
  { name: "ok", words: () => "ok", tone: "good", is: () => true },
];
/** The filter of jobs that are silent. */
export const SILENT = { name: "silent", words: (count) => `silent job${count === 1 ? "" : "s"}`, tone: "bad" };

/** Whether the gateway has not heard of a node yet, good or bad. */
function isWaiting(node) {
  return !node.problem && node.rails === null;
}

function hasNoClock(node) {
  return !isWaiting(node) && (!node.clock || node.clock.synchronised === false);
}

export function kindOf(node) {
  return KINDS.find((kind) => kind.is(node));
}

/** How bad the state of a node is: the higher, the further up. */
export function severity(node) {
  return KINDS.length - KINDS.indexOf(kindOf(node));
}

export function stateOf(node) {
  if (node.problem) return problemWord(node.problem);
  const kind = kindOf(node).name;
  if (kind === "clock") return node.clock ? "clock not synchronised" : "clock not known";
  return kind === "waiting" ? "not asked yet" : trouble(node) || "ok";
}

/** Since when a node is as it is, in ms; null if that is not known. */
export function sinceOf(node) {
  return node[kindOf(node).since] ?? null;
}

/** The worst that is known of a job, `stall` if it is silent: words, tone, since when, and all of it as a title. */
export function jobState(nodes, stall) {
  const found = [];
  if (stall) found.push({ text: `silent for ${elapsed(stall.silent_ms)}: ${stall.sentence}`, tone: "bad", sinceMs: stall.since_ms });
  for (const { name, tone } of KINDS.filter((kind) => kind.tone === "bad" || kind.tone === "warn")) {
    const group = nodes.filter((node) => kindOf(node).name === name);
    const words = [...new Set(group.map(stateOf))].map((word) => `${namesWords(group.filter((node) => stateOf(node) === word).map((node) => node.node))}: ${word}`);
    const known = group.map(sinceOf).filter((ms) => ms !== null);
    if (group.length) found.push({ text: words.join("; "), tone, sinceMs: known.length === group.length ? Math.min(...known) : null });
  }
  const [worst] = found.filter((each) => each.tone === "bad").concat(found);
  return worst ? { ...worst, title: found.map((each) => each.text).join("\n") } : { text: "ok", tone: "", sinceMs: null, title: "" };
}
