// Verdicts on silent jobs: a line on the home page of a gateway, and a card on the page of the job.

import { element, put } from "./elements.js";
import { clock, duration, elapsed } from "./format.js";

// shown before the last byte and after it
const BEFORE_MS = 5_000;
const AFTER_MS = 3_000;
const PARTS = [["evidence", "Evidence"], ["against", "Against other verdicts"], ["not_known", "Not known"]];

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
  return `Silent for ${elapsed(silent)}${pushed ? "" : `, an alert follows after ${elapsed(after)}`}.`;
}

/** A line for each job with a stall that lasts, above everything else. */
export function showVerdicts(holder, jobs, address) {
  holder.replaceChildren();
  for (const job of jobs) {
    const line = element("p", "stall", holder);
    const [stall] = job.stalls;
    element("b", "", line).textContent = `Job ${job.job_id}: ${stall.sentence}`;
    line.append(` ${lastingWords(stall)} `);
    const link = element("a", "", line);
    [link.href, link.textContent] = [`${address(job)}${momentHash(stall)}`, "Show the moment"];
  }
}

/** The card of the last verdict on a job, which stays when the silence ends. */
export class VerdictCard {
  constructor(page, before) {
    this.page = page;
    this.card = element("section", "stall verdict", before.parentElement);
    before.after(this.card);
    this.card.setAttribute("aria-label", "Verdict");
    this.card.hidden = true;
    const head = element("p", "", this.card);
    this.sentence = element("b", "", head);
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
    put(this.sentence, stall.sentence);
    put(this.lasting, `${clock(stall.since_ms)} ± ${duration(stall.since_uncertainty_ms)}. ${lastingWords(stall)}`);
    for (const [name, { part, list }] of this.lists) {
      const sentences = stall[name].filter((each) => each !== stall.sentence);
      part.hidden = !sentences.length;
      if (list.textContent === sentences.join("")) continue;
      list.replaceChildren();
      for (const sentence of sentences) element("li", "", list).textContent = sentence;
    }
    const gone = spanOf(stall)[0] < this.page.reach.fromMs;
    this.button.disabled = gone;
    this.button.title = gone ? "The samples of that moment are no longer in the history; the captures have them." : "Hold the view where the job fell silent";
  }
}
