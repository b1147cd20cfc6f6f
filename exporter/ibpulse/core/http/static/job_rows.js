// The rows of a job's page, which are nodes or rails of nodes: their order, their clocks, and their words.

import { nodeAddress } from "./address.js";
import { element, put } from "./elements.js";
import { UNKNOWN, duration } from "./format.js";
import { Rails, lineRate } from "./rails.js";
import { label, since, stateAt } from "./states.js";

/** The orders of the rows; the first is the default. */
export const ORDERS = ["lateness", "bandwidth", "name", "rack"];
// of what all rails carry in the mean; less is no hot rail
const HOT_SHARE = 1.15;
/** What a verdict says of the nodes that it names, in two words. */
export const NAMED = { link: "link lost", loss: "packets lost", node: "stopped first" };
const natural = new Intl.Collator("en", { numeric: true });

/**
 * A message about rows as one about ports, which the picture shows; `own` is the port of a row that is a rail, and `hot`
 * whether that is the hot rail of the job and carries more here, too. `stall` of the job is one that lasts; `stopped`
 * says what its verdict says of the row, whose `place` is the higher the more it is concerned.
 */
export function asPorts({ rows, ...rest }) {
  const last = rest.job?.verdict;
  // a view that ended before a stall knows nothing of it
  const stall = last && !last.ended_ms && !(last.since_ms >= rest.end_ms) ? last : null;
  if (rest.job) rest.job = { ...rest.job, stall };
  const hot = rest.job?.hot_rail?.port;
  const named = (row) => stall?.nodes.includes(row.node);
  // without samples nobody knows that
  const silent = (row) => stall && Number.isFinite(row.mean_bytes_per_second?.transmit ?? NaN);
  const stopped = (row) => (named(row) ? NAMED[stall.verdict] : silent(row) ? "silent" : "");
  const isHot = (row) => row.row === `${row.node} ${hot}` && shareOf(row, rows) >= HOT_SHARE;
  return { ...rest, ports: rows.map((row) => ({ ...row, own: row.port, port: row.row, rail: true, hot: isHot(row), stopped: stopped(row), place: named(row) ? 1 : 0 })) };
}

/** What a rail carries, compared with the mean of the rails of its node; NaN if it is unknown. */
function shareOf(row, rows) {
  const sum = ({ mean_bytes_per_second: mean }) => (mean?.transmit ?? NaN) + (mean?.receive ?? NaN);
  const siblings = rows.filter((each) => each.node === row.node);
  return (sum(row) * siblings.length) / siblings.reduce((total, each) => total + sum(each), 0);
}

/** An event of a node as one of its row. */
export function asOwn(event) {
  return { ...event, subject: `${event.node} ${event.subject}`.trim(), text: `${event.node} ${event.text}` };
}

/** Lateness in ms beyond what the clocks can tell; 0 if it is within that, null if it is unknown. */
export function certainLateness(numbers) {
  const late = numbers?.lateness_ms ?? null;
  if (late === null || numbers.lateness_uncertainty_ms === null) return null;
  return late > numbers.lateness_uncertainty_ms ? late : 0;
}

/** Rows that a verdict names come first, then other silent ones; null for rows that are not silent. */
function stopOf(numbers) {
  return numbers?.stopped ? numbers.place : null;
}

/** The names of the ports in an order; `numbers` are those of each port by its name. What is unknown comes last. */
export function ordered(ports, numbers, order) {
  const keys = {
    name: () => [],
    lateness: (port) => [stopOf(numbers.get(port.port)), certainLateness(numbers.get(port.port))],
    bandwidth: (port) => [numbers.get(port.port)?.active_bytes_per_second ?? null],
    rack: (port) => [port.labels?.rack ?? null, port.labels?.leaf ?? null],
  };
  const keyed = ports.map((port) => ({ port, key: keys[order](port) }));
  const compare = (a, b) => {
    if (a === b) return 0;
    if (a === null || b === null) return a === null ? 1 : -1;
    return typeof a === "string" ? natural.compare(a, b) : b - a;
  };
  keyed.sort((a, b) => {
    const found = a.key.map((each, index) => compare(each, b.key[index])).find(Boolean);
    return found ?? natural.compare(a.port.port, b.port.port);
  });
  return keyed.map(({ port }) => port.port);
}

/** A clock in a few characters: `+0.31 ± 0.12 ms`. */
export function clockWords(clock) {
  if (!clock) return "± ?";
  const { offset_ms: offset, uncertainty_ms: doubt } = clock;
  const digits = doubt >= 10 ? 0 : doubt >= 1 ? 1 : 2;
  const sign = offset < 0 ? "−" : "+";
  return `${sign}${Math.abs(offset).toFixed(digits)} ± ${doubt.toFixed(digits)} ms`;
}

/** A clock as a sentence. */
export function clockSentence(clock) {
  if (!clock) return "Its clock is not known, so its times cannot be compared with those of other nodes.";
  const free = clock.synchronised === false ? " It is not synchronised." : "";
  const side = clock.offset_ms < 0 ? "behind" : "ahead of";
  return `Its clock is ${clockWords({ ...clock, offset_ms: Math.abs(clock.offset_ms) }).slice(1)} ${side} the gateway's.${free}`;
}

export class NodeRows extends Rails {
  #clocks = new Map();
  #links = new Map();

  /** The name of a row leads to the page of its node; next to it is the offset of its clock. */
  entitle(item, port, short) {
    const link = element("a", "node", item);
    super.entitle(link, port, short);
    this.#links.set(port.port, { link, port });
    this.#clocks.set(port.port, element("span", "clock", item));
  }

  caption(port) {
    return `${port.port}  ${this.#clocks.get(port.port)?.textContent ?? ""}`.trim();
  }

  arrange(layout, rows, unit) {
    super.arrange(layout, rows, unit);
    this.aim(this.fragment);
  }

  /** Point the links at the view: `fragment(port)` is the fragment of the node's page for a row. */
  aim(fragment) {
    this.fragment = fragment;
    for (const { link, port } of this.#links.values()) {
      const address = `${nodeAddress(port.node)}${fragment?.(port.own ?? "") ?? ""}`;
      if (link.getAttribute("href") !== address) link.setAttribute("href", address);
    }
  }

  standing(numbers, ms) {
    super.standing(numbers, ms);
    for (const { port, clock } of numbers ?? []) {
      const span = this.#clocks.get(port);
      if (span) put(span, clockWords(clock));
    }
  }

  words(port, ms, numbers) {
    const state = stateAt(port, ms);
    const rack = Object.entries(port.labels ?? {}).map(([name, value]) => `${name} ${value}`);
    const told = [`${label(state) || state.state} ${since(state)}`.trim(), lineRate(state), ...rack].join(", ");
    return {
      title: `${port.port}: ${told}. ${port.problem_text || clockSentence(numbers?.clock)}`,
      word: label(state) || trouble(numbers),
      group: port.labels?.rack ?? "",
      more: "",
    };
  }
}

/** What is not well on a row that answers: the worst in a few words. */
export function trouble(numbers) {
  if (numbers?.stopped) return numbers.stopped;
  // the other rails of the node say that it is late
  if (numbers?.hot) return "hot";
  if (numbers?.late) return `${duration(numbers.lateness_ms)} late`;
  for (const word of ["down", "idle", "slow"]) {
    const count = numbers?.[`rails_${word}`]?.length;
    if (count) return `${count} rail${count === 1 ? "" : "s"} ${word}`;
  }
  return "";
}

/** Lateness with its uncertainty, as text. */
export function latenessWords(numbers) {
  const late = certainLateness(numbers);
  if (late === null) return UNKNOWN;
  const doubt = duration(numbers.lateness_uncertainty_ms);
  return late > 0 ? `${duration(late)} ± ${doubt}` : `less than ${doubt}`;
}
