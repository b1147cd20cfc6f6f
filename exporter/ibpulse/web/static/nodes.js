// The page of all nodes of a gateway: what each does, those with problems first.

import { NAME, apiAddress, jobAddress, nodeAddress } from "./address.js";
import { element, put } from "./elements.js";
import { UNKNOWN, duration, fullTime } from "./format.js";
import { clockSentence, clockWords, trouble } from "./job_rows.js";
import { jobWords, problemWord } from "./states.js";

const EVERY_MS = 5_000;
const MOST_JOBS = 3;
const MOST_ENDED = 10;
const natural = new Intl.Collator("en", { numeric: true });
const byId = (id) => document.getElementById(id);

/** How bad the state of a node is: the higher, the further up. */
export function severity(node) {
  if (node.problem) return 3;
  if (trouble(node)) return 2;
  return !node.clock || node.clock.synchronised === false ? 1 : 0;
}

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

/** Whether the gateway has not heard of a node yet, good or bad. */
function isWaiting(node) {
  return !node.problem && node.rails === null;
}

function stateOf(node) {
  if (isWaiting(node)) return "not asked yet";
  const clock = node.clock ? "clock not synchronised" : "clock not known";
  return problemWord(node.problem) || trouble(node) || (severity(node) ? clock : "ok");
}

/** The last jobs that ended and match a text, as in an answer of /api/v1/jobs. */
function endedJobs(jobs, text) {
  const wanted = text.trim().toLowerCase();
  return jobs.filter((job) => !job.running && jobWords(job).toLowerCase().includes(wanted)).slice(0, MOST_ENDED);
}

function aboutJob(job, address) {
  const about = [job.name || UNKNOWN, job.scheduler, String(job.nodes.length)].map((text) => ({ text }));
  return [{ text: job.job_id, address: address(job) }, ...about];
}

async function ask(path) {
  const answer = await fetch(apiAddress(path), { cache: "no-store" });
  if (!answer.ok) throw new Error(`the gateway responded with ${answer.status}`);
  return answer.json();
}

/** How many nodes there are and how they are, in a few words. */
function countWords(nodes, shown) {
  if (!nodes.length) return "No nodes";
  const some = shown.length < nodes.length ? `${shown.length} of ` : "";
  const bad = nodes.filter((node) => severity(node) > 1).length;
  const waiting = nodes.filter(isWaiting).length;
  const best = nodes.some(severity) ? "all answering" : "all ok";
  const parts = [bad && `${bad} with a problem`, waiting && `${waiting} not asked yet`].filter(Boolean);
  return [`${some}${nodes.length} node${nodes.length === 1 ? "" : "s"}`, ...(parts.length ? parts : [best])].join(", ");
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
    byId("host").textContent = NAME;
    document.title = `ibpulse · ${NAME}`;
    byId("find").value = new URLSearchParams(`?find=${location.hash.slice(1).replaceAll("+", "%2B")}`).get("find");
    byId("find").addEventListener("input", () => {
      const text = byId("find").value;
      history.replaceState(null, "", text ? `#${encodeURIComponent(text)}` : location.pathname);
      this.show();
    });
    document.addEventListener("visibilitychange", () => this.refresh());
    this.refresh();
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

  say(state, words, message) {
    byId("state").dataset.state = state;
    put(byId("state-words"), words);
    put(byId("message"), message);
    byId("message").hidden = !message;
  }

  show() {
    if (!this.answer) return;
    const { nodes, sources } = this.answer;
    const text = byId("find").value;
    const shown = chosen(nodes, text);
    const ended = endedJobs(this.jobs.jobs, text);
    const key = JSON.stringify([shown, sources, ended]);
    if (key === this.key) return;
    this.key = key;
    put(byId("counts"), countWords(nodes, shown));
    put(byId("none"), emptyWords(nodes, shown, sources));
    byId("nodes-section").hidden = !shown.length;
    byId("notices").replaceChildren();
    for (const source of sources.filter((each) => each.problem)) {
      element("li", "", byId("notices")).textContent =
        `${problemOf(source)}. ${ageWords(source.age_seconds)}`;
    }
    const address = addressing([...nodes, { jobs: this.jobs.jobs }]);
    this.#jobs(jobsOf(shown), ended, address);
    this.#nodes(shown, address);
  }

  #jobs(jobs, ended, address) {
    byId("jobs-section").hidden = !jobs.length && !ended.length;
    const rows = jobs.map((job) => {
      const bad = job.nodes.filter((node) => severity(node) > 1);
      return {
        bad: bad.length > 0,
        cells: [
          ...aboutJob(job, address),
          { text: bad.length ? bad.map((node) => `${node.node}: ${stateOf(node)}`).join(", ") : "ok", tone: "bad" },
        ],
      };
    });
    const old = ended.map((job) => ({
      cells: [...aboutJob(job, address), { text: job.ended_ms ? `ended ${fullTime(job.ended_ms)}` : "ended" }],
    }));
    fill(byId("job-table"), ["Job", "Name", "Scheduler", "Nodes", "State"], [...rows, ...old]);
  }

  #nodes(nodes, address) {
    const names = [...new Set(nodes.flatMap((node) => Object.keys(node.labels)))].sort(natural.compare);
    const rows = nodes.map((node) => ({
      bad: severity(node) > 1,
      cells: [
        { text: node.node, address: nodeAddress(node.node) },
        { text: stateOf(node), title: node.problem_text, tone: "bad" },
        { text: clockWords(node.clock), title: clockSentence(node.clock) },
        { jobs: node.jobs.map((job) => ({ text: jobWords(job), address: address(job) })) },
        { text: node.version || UNKNOWN },
        ...names.map((name) => ({ text: node.labels[name] ?? "" })),
      ],
    }));
    const heads = names.map((name) => name.charAt(0).toUpperCase() + name.slice(1));
    fill(byId("node-table"), ["Node", "State", "Clock offset", "Jobs", "Version", ...heads], rows);
  }
}

/** Fill a table; the first cell of a row names it. */
function fill(table, heads, rows) {
  const focused = table.contains(document.activeElement) ? placeOf(document.activeElement) : "";
  table.replaceChildren();
  const head = element("tr", "", element("thead", "", table));
  for (const text of heads) Object.assign(element("th", "", head), { textContent: text, scope: "col" });
  const body = element("tbody", "", table);
  for (const { cells, bad } of rows) {
    const row = element("tr", "", body);
    cells.forEach((cell, index) => {
      const holder = element(index ? "td" : "th", "", row);
      if (!index) holder.scope = "row";
      if (bad && cell.tone) holder.className = cell.tone;
      if (cell.title) holder.title = cell.title;
      if (cell.jobs) fillJobs(holder, cell.jobs);
      else write(holder, cell);
      holder.classList.toggle("long", holder.textContent.length > 30);
    });
  }
  if (focused) [...table.querySelectorAll("a")].find((link) => placeOf(link) === focused)?.focus();
}

/** What identifies a link of a table: its row, and where it leads. */
function placeOf(link) {
  return JSON.stringify([link.closest("tr")?.cells[0].textContent, link.getAttribute("href")]);
}

function write(holder, { text, address }) {
  if (!address) holder.textContent = text;
  else Object.assign(element("a", "", holder), { href: address, textContent: text });
}

function fillJobs(holder, jobs) {
  jobs.slice(0, MOST_JOBS).forEach((job, index) => {
    if (index) holder.append(", ");
    write(holder, job);
  });
  if (jobs.length > MOST_JOBS) holder.append(` and ${jobs.length - MOST_JOBS} more`);
}

document.documentElement.dataset.script = "yes";
window.ibpulse = new NodesPage();
