// Shows the node's statistics as cards, legible from a distance.

import { element, put } from "./elements.js";
import { UNKNOWN, decimal, duration, percent, rate, rateIn, rateParts } from "./format.js";
import { helpButton } from "./help.js";
import { MILD_WORDS } from "./states.js";

const SIGNATURES = { idle: "idle", dense_like: "dense-like", moe_like: "MoE-like", unknown: "unknown" };

/**
 * Name, explanation and value of each card; `value` returns number, unit, remark, and optionally a tone and a longer remark.
 */
const CARDS = [
  {
    name: "Now",
    title: "Rate over the last half second, transmit + receive of all rails; the mean of the view while it is held.",
    value: (n) => [...rateParts(n.now, n.unit), waysWords(n.now, n.transmit, n.receive, n.unit)],
  },
  {
    name: "Peak",
    title: "Highest single sample in the window. The line rate is that of all rails, idle or down, both directions.",
    value: peak,
  },
  {
    name: "Active mean",
    title: "Mean over the samples with traffic, excluding idle ones.",
    value: (n) => [
      ...rateParts(n.activeMean, n.unit),
      n.mean === null ? "" : `mean ${rate(n.mean, n.unit)}, peak ÷ mean ${decimal(n.peakToMean, 1)}`,
    ],
  },
  {
    name: "Duty cycle",
    title: "Fraction of the observed time with traffic.",
    value: (n) => [...split(percent(n.duty)), n.duty === null ? "" : "of the time with traffic"],
  },
  {
    name: "Burstiness (CV)",
    title:
      "Variation of the samples with traffic: standard deviation ÷ mean (CV). " +
      "It depends on the timescale shown.",
    value: burstiness,
  },
  {
    name: "Step period",
    title:
      "Period of the node's traffic; for a training job, the length of a step. " +
      "Shown if the score is high enough.",
    value: step,
  },
  {
    name: "Signature",
    title: "Workload that this traffic resembles most, with a confidence. It does not prove what runs.",
    value: (n) => [
      SIGNATURES[n.signature] ?? n.signature ?? UNKNOWN,
      "",
      n.confidence === null ? "" : `confidence ${percent(n.confidence, 0)}`,
    ],
  },
  {
    name: "Active rails",
    title: "Rails with traffic, and their balance: fairness is Jain's index, 1 if all rails carry the same.",
    value: rails,
  },
];

function split(text) {
  const at = text.indexOf(" ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

/** Both directions in the unit of their sum; empty if the sum is unknown. */
export function waysWords(sum, transmit, receive, unit) {
  const [, name] = rateParts(sum, unit);
  return sum === null ? "" : `↑ ${rateIn(transmit, name)}  ↓ ${rateIn(receive, name)}`;
}

function peak(n) {
  const known = n.line !== null && n.peakUtilization !== null;
  const remark = known ? `${percent(n.peakUtilization, 0)} of the line rate, ${rate(n.line, n.unit)}` : "";
  return [...rateParts(n.peak, n.unit), remark];
}

function step(n) {
  // four periods are needed to find a step, so a short view cannot show a long one
  const reach = n.heldSeconds ? `, limited to ${duration(n.heldSeconds * 250)} in this view` : " of 1";
  if (n.step !== null) return [...split(duration(n.step * 1000)), `score ${decimal(n.score)}${reach}`];
  return [UNKNOWN, "", n.score === null ? "not computed yet" : `no clear period, score ${decimal(n.score)}`];
}

function burstiness(n) {
  const scales = Object.entries(n.cv);
  if (!scales.length || scales.every(([, value]) => value === null)) return [UNKNOWN, "", ""];
  const rest = scales.slice(1).map(([scale, value]) => `${scale}\u00a0${decimal(value)}`);
  return [decimal(scales[0][1]), scales[0][0], rest.join(", ")];
}

function rails(n) {
  const full = n.labels.map(([word, ports]) => `${word}: ${ports.join(", ")}`).join("; ");
  const short = n.labels.map(([word, ports]) => `${ports.length} ${word}`).join(", ");
  return [
    n.activeRails ?? UNKNOWN,
    `of ${n.rails ?? UNKNOWN}`,
    (n.labels.length > 1 ? short : full) || `fairness ${decimal(n.fairness, 3)}`,
    full ? toneOf(n.labels) : "",
    full,
  ];
}

/** An idle or slow rail may be as it should be; the other labels are problems. */
function toneOf(labels) {
  return labels.every(([word]) => MILD_WORDS.includes(word)) ? "mild" : "bad";
}

/** The statistics of one window from a `summary` event. */
export function fromSecond(second, name) {
  const window = second.node.windows[name];
  return { ...shared(second.node), ...fromWindow(window) };
}

/** The statistics from a response of /api/v1/summary. */
export function fromSummary(answer) {
  return { ...shared(answer.node), ...fromWindow(answer.node) };
}

/** The node's statistics in one window. */
export function fromWindow(window) {
  const ways = [window.transmit_bytes_per_second, window.receive_bytes_per_second];
  return {
    peak: window.bandwidth_peak_bytes_per_second,
    activeMean: window.bandwidth_active_mean_bytes_per_second,
    mean: ways.includes(null) ? null : ways[0] + ways[1],
    transmit: ways[0],
    receive: ways[1],
    peakToMean: window.peak_to_mean_ratio,
    peakUtilization: window.bandwidth_peak_utilization_ratio,
    duty: window.duty_cycle_ratio,
    cv: window.burstiness_cv,
  };
}

function shared(node) {
  return {
    rails: node.rails,
    line: node.line_rate_bytes_per_second,
    activeRails: node.active_rails,
    fairness: node.rail_fairness_ratio,
    step: node.step_period_seconds,
    score: node.step_period_score,
    signature: node.workload_signature,
    confidence: node.workload_signature_confidence,
  };
}

export class Cards {
  #parts;

  constructor(holder, cards = CARDS) {
    this.#parts = cards.map(({ name, title, value }) => {
      const card = element("div", "card", holder);
      const head = element("h3", "", card);
      head.textContent = name;
      const number = element("p", "value", card);
      const parts = { number: element("span", "", number), unit: element("small", "", number) };
      const sub = element("p", "sub", card);
      helpButton(card, name, title);
      return { ...parts, card, head, name, value, paragraph: number, sub };
    });
  }

  show(numbers) {
    for (const part of this.#parts) {
      const [number, unit, sub, tone, title] = part.value(numbers);
      put(part.head, part.name === "Now" && numbers.heldSeconds ? "Mean" : part.name);
      put(part.number, String(number));
      put(part.unit, unit);
      put(part.sub, sub);
      part.sub.title = title || sub;
      part.paragraph.classList.toggle("words", String(number).length > 6);
      part.card.dataset.tone = tone ?? "";
    }
  }
}
