// The cards of a job: its numbers, and which node or rail differs from the others.

import { Cards, waysWords } from "./cards.js";
import { UNKNOWN, decimal, duration, percent, rate, rateParts } from "./format.js";
import { NAMED, asPorts } from "./job_rows.js";
import { Numbers } from "./numbers.js";

const MOST_NAMES = 3;
// of a summary of a job
const MOST_SECONDS = 60;

const CARDS = [
  {
    name: "Now",
    title: "Mean of the last second, transmit + receive of all nodes that answer; the mean of the view while it is held.",
    value: (job) => [
      ...rateParts(sum(job), job.unit),
      waysWords(sum(job), job.transmit_bytes_per_second, job.receive_bytes_per_second, job.unit),
    ],
  },
  {
    name: "Peak of a node",
    title: "Highest single sample of a node, transmit + receive of its rails.",
    value: (job) => [...rateParts(job.peak?.bytes_per_second, job.unit), job.peak?.row ?? ""],
  },
  {
    name: "Active mean",
    title: "Mean of a node over its samples with traffic: the median of the nodes, the least and the most.",
    value: (job) => spread(job, "active_bytes_per_second", (each) => rate(each, job.unit)),
  },
  {
    name: "Duty cycle",
    title: "Fraction of the observed time with traffic: the median of the nodes, the least and the most.",
    value: (job) => spread(job, "duty_cycle_ratio", (each) => percent(each)),
  },
  {
    name: "Step period",
    title: "Length of a step as each node's own traffic shows it: the median of the nodes, the least and the most.",
    value: (job) => spread(job, "step_period_seconds", (each) => duration(each * 1000), "no clear period"),
  },
  {
    name: "Latest node",
    title:
      "The node whose traffic begins latest in a step, compared with the other nodes. " +
      "Nothing is said below the uncertainty of the clocks.",
    value: latest,
  },
  {
    name: "Active rails",
    title: "Rails with traffic. A hot rail carries more than the others of its nodes, on most nodes.",
    value: rails,
  },
  {
    name: "Nodes",
    title: "Nodes of the job that answer the gateway, and how far their clocks are apart.",
    value: nodes,
  },
];

function sum({ transmit_bytes_per_second: sent, receive_bytes_per_second: received }) {
  return sent === null || received === null ? null : sent + received;
}

function spread(job, name, words, none = "") {
  const found = job[name];
  if (!found) return [UNKNOWN, "", none];
  const [median, least, most] = [found.median, found.least, found.most].map((each) => words(each).split(" "));
  if (least.join() === most.join()) return [...median, job.answering > 1 ? "the same on all nodes" : ""];
  const from = least[1] === most[1] ? least[0] : least.join(" ");
  return [...median, `${from} to ${most.join(" ")}`];
}

function latest(job) {
  if (job.stall) {
    const { verdict, nodes: names, sentence } = job.stall;
    return ["silent", "", NAMED[verdict] ? `${some(names)}: ${NAMED[verdict]}` : "see the verdict above", "bad", sentence];
  }
  if (job.nodes < 2) return [UNKNOWN, "", "no other node to compare with"];
  if (!job.lateness_nodes) return [UNKNOWN, "", "not known"];
  if (!job.late) return ["none", "", `of ${job.lateness_nodes}, given their clocks`];
  return [...duration(job.late.lateness_ms).split(" "), `${job.late.row}, ± ${duration(job.late.uncertainty_ms)}`, "bad"];
}

function rails(job) {
  const hot = job.hot_rail;
  const on = job.answering > 1 ? ` on ${hot?.nodes} of ${job.answering} nodes` : "";
  const words = hot && `${hot.port} is hot: ${decimal(hot.share_ratio / hot.usual_ratio, 1)} × the mean${on}`;
  const missing = job.active_rails === null ? 0 : job.rails - job.active_rails;
  return [job.active_rails ?? UNKNOWN, `of ${job.rails}`, words ?? (missing ? `no traffic seen on ${missing}` : ""), words || missing ? "bad" : "", words];
}

function nodes(job) {
  const missing = job.missing.map((each) => each.node);
  const clocks = job.nodes < 2 ? "" : job.clock ? `clocks within ${duration(job.clock.spread_ms)} ± ${duration(job.clock.uncertainty_ms)}` : "clocks not known";
  return [job.answering, `of ${job.nodes}`, missing.length ? `missing: ${some(missing)}` : clocks, missing.length ? "bad" : "", missing.join(", ")];
}

/** The first of these names, and how many more there are. */
function some(names) {
  const rest = names.length - MOST_NAMES;
  return `${names.slice(0, MOST_NAMES).join(", ")}${rest > 0 ? ` and ${rest} more` : ""}`;
}

export class JobNumbers extends Numbers {
  constructor(page) {
    super(page, new Cards(document.getElementById("cards"), CARDS));
  }

  get windows() {
    return [];
  }

  get mostSeconds() {
    return Math.min(MOST_SECONDS, super.mostSeconds);
  }

  read(answer) {
    return asPorts(answer);
  }

  ofNow(second) {
    return { ...second.job, unit: this.page.view.unit };
  }

  ofView(summary, seconds) {
    return { ...summary.job, heldSeconds: seconds, unit: this.page.view.unit };
  }
}
