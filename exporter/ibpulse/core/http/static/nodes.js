// The page of all nodes of a gateway: what each does, those with problems first.

import { NAME, apiAddress, jobAddress, nodeAddress } from "./address.js";
import { element, put } from "./elements.js";
import { KINDS, SILENT, jobState, kindOf, severity, sinceOf, stateOf } from "./fleet_states.js";
import { UNKNOWN, clock, day, duration, fullTime } from "./format.js";
import { clockSentence, clockWords } from "./job_rows.js";
import { fill } from "./link_table.js";
import { jobWords } from "./states.js";
import { lastingStall, showVerdicts, watchVerdicts } from "./verdicts.js";

const EVERY_MS = 5_000;
const MOST_ENDED = 10;
// more nodes without an answer are collapsed
const MOST_LOST = 4;
const MOST_RACKS = 8;
const natural = new Intl.Collator("en", { numeric: true });
const byId = (id) => document.getElementById(id);

/** The nodes that match a text, those with problems first. */
export function chosen(nodes, text) {
  const wanted = text.trim().toLowerCase();
  const words = (node) =>
    [node.node, stateOf(node), node.version, ...Object.values(node.labels), ...node.jobs.map(jobWords)].join("\n").toLowerCase();
  return nodes
    .filter((node) => words(node).includes(wanted))
    .sort((a, b) => severity(b) - severity(a) || natural.compare(a.node, b.node));
}

/** The jobs of the nodes, each with the nodes that have it, by their ids. */
export function jobsOf(nodes) {
  const found = new Map();
  for (const node of nodes) {
    for (const job of node.jobs) {
      if (!found.has(keyOf(job))) found.set(keyOf(job), { ...job, nodes: [] });
      found.get(keyOf(job)).nodes.push(node);
    }
  }
  return [...found.values()].sort((a, b) => natural.compare(a.job_id, b.job_id));
}

function keyOf({ scheduler, job_id }) {
  return `${scheduler}:${job_id}`;
}

/** A function that returns the URL of a job's page; its id has the scheduler in front only if several have that id. */
export function addressing(nodes) {
  const ids = jobsOf(nodes).map((job) => job.job_id);
  const many = new Set(ids.filter((id, index) => ids.indexOf(id) !== index));
  return (job) => jobAddress(many.has(job.job_id) ? keyOf(job) : job.job_id);
}

/** The last jobs that ended and match a text, as in an answer of /api/v1/jobs. */
function endedJobs(jobs, text) {
  const wanted = text.trim().toLowerCase();
  return jobs.filter((job) => !job.running && jobWords(job).toLowerCase().includes(wanted)).slice(0, MOST_ENDED);
}

function aboutJob(job) {
  return [String(job.nodes.length), job.name || UNKNOWN, job.scheduler].map((text) => ({ text }));
}

async function ask(path) {
  const answer = await fetch(apiAddress(path), { cache: "no-store" });
  if (!answer.ok) throw new Error(`the gateway responded with ${answer.status}`);
  return answer.json();
}

/** How many nodes there are, and how many of them are shown. */
function countWords(nodes, shown) {
  const some = shown.length < nodes.length ? `${shown.length} of ` : "";
  return nodes.length ? `${some}${nodes.length} node${nodes.length === 1 ? "" : "s"}` : "No nodes";
}

/** The state of the view, as in the address: a text to find, and the state of which nodes or jobs are shown. */
function readAddress() {
  const found = new URLSearchParams(`?find=${location.hash.slice(1).replaceAll("+", "%2B")}`);
  return { text: found.get("find"), state: found.get("state") ?? "" };
}

/** A time of day, with its date if that is not today. */
function sinceWords(ms) {
  if (ms === null) return "";
  return day(ms) === day(Date.now()) ? clock(ms) : `${day(ms)} ${clock(ms)}`;
}

/** How many nodes of each rack, or of each other first label, there are. */
function racksWords(nodes) {
  const racks = new Map();
  for (const node of nodes) {
    const rack = node.labels.rack ?? Object.values(node.labels)[0] ?? "";
    racks.set(rack, (racks.get(rack) ?? 0) + 1);
  }
  const words = [...racks].sort((a, b) => natural.compare(a[0], b[0])).filter(([rack]) => rack).map(([rack, count]) => `${rack}: ${count}`);
  return words.length > MOST_RACKS ? `${words.slice(0, MOST_RACKS).join(", ")} and ${words.length - MOST_RACKS} more racks` : words.join(", ");
}

/** Why no node is listed, empty if one is. */
function emptyWords(nodes, shown, sources) {
  if (shown.length) return "";
  if (nodes.length) return "No node, job or label matches.";
  const named = sources.map((each) => each.source).join(", ");
  return `No nodes are listed yet. Sources: ${named || "none"}.`;
}

/** The problem of a source with its name, which some problems begin with. */
function problemOf({ source, problem }) {
  return problem.startsWith(source) ? problem : `${source}: ${problem}`;
}

function ageWords(seconds) {
  if (seconds === null) return "It has not answered yet.";
  return `Its last answer is ${duration(seconds * 1000)} old and still in use.`;
}

class NodesPage {
  constructor() {
    this.light = matchMedia("(prefers-color-scheme: light)");
    this.light.addEventListener("change", () => this.dress());
    this.dress();
    this.answer = null;
    this.stalled = [];
    byId("host").textContent = NAME;
    document.title = `ibpulse · ${NAME}`;
    const { text, state } = readAddress();
    byId("find").value = text;
    this.state = state;
    byId("find").addEventListener("input", () => this.choose(this.state));
    document.addEventListener("visibilitychange", () => this.refresh());
    this.refresh();
    watchVerdicts((jobs) => this.judge(jobs));
  }

  dress() {
    document.documentElement.dataset.theme = this.light.matches ? "light" : "dark";
  }

  async refresh() {
    clearTimeout(this.due);
    if (document.hidden) return;
    try {
      [this.answer, this.jobs] = await Promise.all(["nodes", "jobs"].map(ask));
      this.say("live", "Live", "");
      this.show();
    } catch (error) {
      this.say("lost", "Connection lost", error instanceof TypeError ? "No response from the gateway." : `${error.message}.`);
    }
    clearTimeout(this.due);
    this.due = setTimeout(() => this.refresh(), EVERY_MS);
  }

  /** Show the verdicts on jobs that are silent now, in the title too. */
  judge(jobs) {
    this.stalled = jobs.filter(lastingStall);
    showVerdicts(byId("verdicts"), this.stalled, addressing([{ jobs }]));
    const words = this.stalled.map((job) => `▼ ${job.job_id}: ${job.stalls[0].verdict}`);
    const title = [...words.slice(0, 3), `ibpulse · ${NAME}`].join(" · ");
    if (document.title !== title) this.show();
    document.title = title;
  }

  say(state, words, message) {
    byId("state").dataset.state = state;
    put(byId("state-words"), words);
    put(byId("message"), message);
    byId("message").hidden = !message;
  }

  /** Show only the nodes or jobs in a state; all of them for an empty one. */
  choose(state) {
    this.state = state;
    const text = encodeURIComponent(byId("find").value);
    const hash = `${text}${state ? `&state=${state}` : ""}`;
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname);
    this.show();
  }

  show() {
    if (!this.answer) return;
    const { nodes, sources } = this.answer;
    const text = byId("find").value;
    const stalls = new Map(this.stalled.map((job) => [keyOf(job), job.stalls[0]]));
    const silent = jobsOf(nodes).filter((job) => stalls.has(keyOf(job)));
    const found = chosen(nodes, text);
    const shown = found.filter((node) => this.#isChosen(node, silent));
    const ended = this.state ? [] : endedJobs(this.jobs.jobs, text);
    const key = JSON.stringify([shown, sources, ended, [...stalls], this.state]);
    if (key === this.key) return;
    this.key = key;
    this.#filters(found, silent);
    put(byId("counts"), countWords(nodes, shown));
    put(byId("none"), emptyWords(nodes, shown, sources));
    byId("nodes-section").hidden = !shown.length;
    const simulated = nodes.filter((node) => node.simulated).length;
    byId("simulated").hidden = !simulated;
    put(byId("simulated"), simulated < nodes.length ? `${simulated} SIMULATED` : "SIMULATED");
    byId("notices").replaceChildren();
    for (const source of sources.filter((each) => each.problem)) {
      element("li", "", byId("notices")).textContent =
        `${problemOf(source)}. ${ageWords(source.age_seconds)}`;
    }
    const address = addressing([...nodes, { jobs: this.jobs.jobs }]);
    const wanted = this.state === SILENT.name ? silent : jobsOf(shown);
    this.#jobs(wanted, stalls, ended, address);
    const lost = shown.filter((node) => node.problem);
    const some = lost.length > MOST_LOST;
    this.#lost(some ? lost : [], address);
    this.#nodes(byId("node-table"), some ? shown.filter((node) => !node.problem) : shown, address);
  }

  #isChosen(node, silent) {
    if (this.state === SILENT.name) return silent.some((job) => job.nodes.includes(node));
    return !this.state || kindOf(node).name === this.state;
  }

  /** The counts of each state, each a button that shows these alone. */
  #filters(nodes, silent) {
    const holder = byId("filters");
    const focused = holder.contains(document.activeElement) ? document.activeElement.dataset.state : "";
    holder.replaceChildren();
    const counts = KINDS.map((kind) => [kind, nodes.filter((node) => kindOf(node) === kind).length]);
    // silence is said of jobs, so it comes before "ok", which is said of nodes
    counts.splice(3, 0, [SILENT, silent.length]);
    for (const [kind, count] of counts) {
      if (!count && kind.rare && kind.name !== this.state) continue;
      const button = element("button", "filter", holder);
      button.dataset.state = kind.name;
      button.dataset.tone = count ? kind.tone : "";
      button.setAttribute("aria-pressed", String(kind.name === this.state));
      button.disabled = !count && kind.name !== this.state;
      element("b", "", button).textContent = count;
      button.append(` ${kind.words(count)}`);
      button.addEventListener("click", () => this.choose(kind.name === this.state ? "" : kind.name));
      if (kind.name === focused) button.focus();
    }
  }

  #jobs(jobs, stalls, ended, address) {
    byId("jobs-section").hidden = !jobs.length && !ended.length;
    const leading = (job) => ({ text: job.job_id, address: address(job) });
    const rows = jobs.map((job) => {
      const { text, tone, sinceMs, title } = jobState(job.nodes, stalls.get(keyOf(job)));
      return { tone, cells: [leading(job), { text, title, toned: true }, sinceCell(sinceMs), ...aboutJob(job)] };
    });
    const rank = ({ tone }) => ["bad", "warn", ""].indexOf(tone);
    rows.sort((a, b) => rank(a) - rank(b));
    const old = ended.map((job) => ({
      cells: [leading(job), { text: "ended" }, sinceCell(job.ended_ms), ...aboutJob(job)],
    }));
    fill(byId("job-table"), ["Job", "State", "Since", "Nodes", "Name", "Scheduler"], [...rows, ...old]);
  }

  /** Nodes that do not answer, collapsed as long as nobody asks for them. */
  #lost(nodes, address) {
    const details = byId("lost");
    details.hidden = !nodes.length;
    if (!nodes.length) return;
    const racks = racksWords(nodes);
    put(byId("lost-title"), `${nodes.length} nodes do not answer${racks ? ` · ${racks}` : ""}`);
    if (this.state === "lost" || byId("find").value) details.open = true;
    this.#nodes(byId("lost-table"), nodes, address);
  }

  #nodes(table, nodes, address) {
    table.closest(".wide").hidden = !nodes.length;
    const names = [...new Set(nodes.flatMap((node) => Object.keys(node.labels)))].sort(natural.compare);
    const rows = nodes.map((node) => ({
      tone: kindOf(node).tone,
      cells: [
        { text: node.node, address: nodeAddress(node.node) },
        { text: stateOf(node), title: node.problem_text, toned: true },
        sinceCell(sinceOf(node)),
        { text: clockWords(node.clock), title: clockSentence(node.clock) },
        { jobs: node.jobs.map((job) => ({ text: jobWords(job), address: address(job) })) },
        { text: node.version || UNKNOWN },
        ...names.map((name) => ({ text: node.labels[name] ?? "" })),
      ],
    }));
    const heads = names.map((name) => name.charAt(0).toUpperCase() + name.slice(1));
    fill(table, ["Node", "State", "Since", "Clock offset", "Jobs", "Version", ...heads], rows);
  }
}

const sinceCell = (ms) => ({ text: sinceWords(ms ?? null), title: ms ? fullTime(ms) : "" });

document.documentElement.dataset.script = "yes";
window.ibpulse = new NodesPage();
