// Verdicts on silent jobs: a line on the home page of a gateway, and a card on the pages of a job and its nodes.

import { NAME } from "./address.js";
import { element, put } from "./elements.js";
import { clock, duration, elapsed } from "./format.js";

// those of the gateway, or of a node that has none
const ADDRESS = `${document.documentElement.dataset.root ?? ""}api/v1/verdicts`;
// they are few and urgent
const EVERY_MS = 1_000;
// shown before the last byte and after it
const BEFORE_MS = 5_000;
const AFTER_MS = 3_000;
const PARTS = [["evidence", "Evidence"], ["against", "Against other verdicts"], ["not_known", "Not known"]];

/** Call `show` with the watched jobs once a second, also while nobody looks at the page. */
export async function watchVerdicts(show) {
  const jobs = await fetch(ADDRESS, { cache: "no-store" }).then((answer) => answer.ok && answer.json()).catch(() => null);
  if (jobs) show(jobs.jobs);
  setTimeout(() => watchVerdicts(show), EVERY_MS);
}

/** What distinguishes a job from those of other schedulers. */
const keyOf = ({ scheduler, job_id }) => `${scheduler}:${job_id}`;

/** The stall of a job that lasts. */
export function lastingStall({ stalls: [stall] }) {
  return stall && !stall.ended_ms ? stall : null;
}

/** The span around the moment in which a job fell silent, in ms. */
export function spanOf({ since_ms: since, since_uncertainty_ms: unsure }) {
  return [since - Math.min(unsure, BEFORE_MS) - BEFORE_MS, since + AFTER_MS];
}

/** The part of the address of a job's page that shows this moment. */
export function momentHash(stall) {
  const [from, to] = spanOf(stall).map(Math.round);
  return `#from=${from}&to=${to}`;
}

/** How a silence goes on, or how it ended. */
export function lastingWords({ silent_ms: silent, ended_ms: ended, resumed, pushed, push_after_ms: after }) {
  if (ended) return resumed ? `Traffic returned after ${elapsed(silent)}.` : `The job ended after ${elapsed(silent)}.`;
  return `Silent for ${elapsed(silent)}${pushed ? "" : `; an alert is due after ${elapsed(after)}`}.`;
}

/** A line for each job with a stall that lasts, above everything else. */
export function showVerdicts(holder, jobs, address) {
  const lines = new Map([...holder.children].map((line) => [line.dataset.job, line]));
  for (const job of jobs) {
    const [stall] = job.stalls;
    const line = lines.get(keyOf(job)) ?? newLine(holder, keyOf(job));
    lines.delete(keyOf(job));
    const [sentence, lasting, link] = line.children;
    put(sentence, `Job ${job.job_id}: ${stall.sentence}.`);
    put(lasting, lastingWords(stall));
    link.setAttribute("href", `${address(job)}${momentHash(stall)}`);
  }
  for (const line of lines.values()) line.remove();
}

function newLine(holder, key) {
  const line = element("p", "stall", holder);
  line.dataset.job = key;
  // what is read aloud does not change every second
  element("b", "", line).setAttribute("role", "alert");
  element("span", "", line);
  element("a", "", line).textContent = "Show the moment";
  return line;
}

/** The cards of the jobs of a page, above everything else; what lasts is in the title of the page, too. */
export class Verdicts {
  #cards = new Map();

  /** A page has its `jobs`; `words` are what is said of each of them, before its verdict. */
  constructor(page, words) {
    [this.page, this.words] = [page, words];
    watchVerdicts((jobs) => this.show(jobs));
  }

  show(every) {
    if (!this.page.ready) return;
    const mine = new Set(this.page.jobs.map(keyOf));
    const jobs = every.filter((job) => mine.has(keyOf(job)));
    for (const job of jobs.filter((each) => each.stalls.length && !this.#cards.has(keyOf(each)))) {
      this.#cards.set(keyOf(job), new VerdictCard(this.page, this.words(job)));
    }
    const stalls = new Map(jobs.map((job) => [keyOf(job), job.stalls[0]]));
    for (const [key, card] of this.#cards) card.show(stalls.get(key));
    const silent = jobs.filter(lastingStall).map((job) => `▼ ${this.words(job)}${job.stalls[0].verdict}`);
    document.title = [...silent.slice(0, 3), NAME, "ibpulse"].join(" · ");
  }
}

/** The card of the last verdict on a job, which stays when the silence ends. */
class VerdictCard {
  constructor(page, words) {
    [this.page, this.words] = [page, words];
    const notices = document.getElementById("notices").parentElement;
    this.card = element("section", "stall verdict", notices.parentElement);
    notices.after(this.card);
    this.card.setAttribute("aria-label", "Verdict");
    this.card.hidden = true;
    const head = element("p", "", this.card);
    this.sentence = element("b", "", head);
    this.sentence.setAttribute("role", "alert");
    head.append(" ");
    this.lasting = element("span", "", head);
    this.button = element("button", "", this.card);
    this.button.textContent = "Show the moment";
    this.button.addEventListener("click", () => page.controls.showSpan(...spanOf(this.stall)));
    this.lists = new Map(
      PARTS.map(([name, words]) => {
        const part = element("div", "", this.card);
        element("h3", "", part).textContent = words;
        return [name, { part, list: element("ul", "", part) }];
      }),
    );
  }

  show(stall) {
    this.stall = stall;
    this.card.hidden = !stall;
    if (!stall) return;
    this.card.dataset.over = stall.ended_ms ? "yes" : "no";
    put(this.sentence, `${this.words}${stall.sentence}.`);
    const doubt = stall.since_uncertainty_ms / 2;
    put(this.lasting, `Last byte at ${clock(stall.since_ms - doubt, 3)} ± ${duration(doubt)}. ${lastingWords(stall)}`);
    for (const [name, { part, list }] of this.lists) {
      const text = stall[name].join("");
      part.hidden = !text || text === stall.sentence;
      if (list.textContent === text) continue;
      list.replaceChildren();
      for (const sentence of stall[name]) element("li", "", list).textContent = sentence;
    }
    const gone = stall.since_ms < this.page.reach.fromMs;
    this.button.disabled = gone;
    this.button.title = gone ? "The samples of that moment are no longer in the history; a capture may have them." : "Hold the view where the job fell silent";
  }
}
