// The page of all nodes of a gateway: what each does, those with problems first.

import { NAME, apiAddress, jobAddress, nodeAddress } from "./address.js";
import { element, put } from "./elements.js";
import { UNKNOWN, duration } from "./format.js";
import { clockSentence, clockWords, trouble } from "./job_rows.js";
import { jobWords, problemWord } from "./states.js";

const EVERY_MS = 5_000;
const MOST_JOBS = 3;
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
      const key = `${job.scheduler}:${job.job_id}`;
      if (!found.has(key)) found.set(key, { ...job, key, nodes: [] });
      found.get(key).nodes.push(node);
    }
  }
  const ids = [...found.values()].map((job) => job.job_id);
  const whole = (job) => (ids.filter((id) => id === job.job_id).length > 1 ? job.key : job.job_id);
  return [...found.values()]
    .map((job) => ({ ...job, address: jobAddress(whole(job)) }))
    .sort((a, b) => natural.compare(a.job_id, b.job_id));
}

function stateOf(node) {
  const clock = node.clock ? "clock not synchronised" : "clock not known";
  return problemWord(node.problem) || trouble(node) || (severity(node) ? clock : "well");
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
    byId("find").value = decodeURIComponent(location.hash.slice(1));
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
      const answer = await fetch(apiAddress("nodes"), { cache: "no-store" });
      if (!answer.ok) throw new Error(`the gateway responded with ${answer.status}`);
      this.answer = await answer.json();
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
    const shown = chosen(nodes, byId("find").value);
    const key = JSON.stringify([shown, sources]);
    if (key === this.key) return;
    this.key = key;
    const bad = nodes.filter((node) => severity(node) > 1).length;
    const some = shown.length < nodes.length ? `${shown.length} of ` : "";
    put(byId("counts"), `${some}${nodes.length} nodes${bad ? `, ${bad} with a problem` : ", all well"}`);
    byId("notices").replaceChildren();
    for (const source of sources.filter((each) => each.problem)) {
      element("li", "", byId("notices")).textContent =
        `${source.source}: ${source.problem}. ${ageWords(source.age_seconds)}`;
    }
    this.#jobs(jobsOf(shown));
    this.#nodes(shown);
  }

  #jobs(jobs) {
    byId("jobs-section").hidden = !jobs.length;
    const rows = jobs.map((job) => {
      const bad = job.nodes.filter((node) => severity(node) > 1);
      return {
        bad: bad.length > 0,
        cells: [
          { text: job.job_id, address: job.address },
          { text: job.name || UNKNOWN },
          { text: job.scheduler },
          { text: String(job.nodes.length) },
          { text: bad.length ? bad.map((node) => `${node.node}: ${stateOf(node)}`).join(", ") : "well", tone: "bad" },
        ],
      };
    });
    fill(byId("job-table"), ["Job", "Name", "Scheduler", "Nodes", "State"], rows);
  }

  #nodes(nodes) {
    const names = [...new Set(nodes.flatMap((node) => Object.keys(node.labels)))].sort(natural.compare);
    const rows = nodes.map((node) => ({
      bad: severity(node) > 1,
      cells: [
        { text: node.node, address: nodeAddress(node.node) },
        { text: stateOf(node), title: node.problem_text, tone: "bad" },
        { text: clockWords(node.clock), title: clockSentence(node.clock) },
        { jobs: node.jobs },
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
    write(holder, { text: jobWords(job), address: jobAddress(job.job_id) });
  });
  if (jobs.length > MOST_JOBS) holder.append(` and ${jobs.length - MOST_JOBS} more`);
}

document.documentElement.dataset.script = "yes";
window.ibpulse = new NodesPage();
