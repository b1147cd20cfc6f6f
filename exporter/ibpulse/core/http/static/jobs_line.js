// The line that names the jobs of the shown rails; below a gateway each name leads to the page of the job.

import { BELOW_GATEWAY, jobAddress } from "./address.js";
import { element } from "./elements.js";
import { jobWords } from "./states.js";

const MOST_JOBS = 4;

/** The id of a job that no other scheduler has. */
const whole = ({ scheduler, job_id }) => `${scheduler}:${job_id}`;

/** Name jobs in a line, whose tooltip has what the line has no room for; the links lead to a fragment of the pages. */
export function showJobs(line, jobs, fragment) {
  // a job that ran twice is named once
  const found = [...new Map(jobs.map((job) => [whole(job), job])).values()];
  const shown = found.slice(0, MOST_JOBS);
  const head = found.length > 1 ? "Jobs " : "Job ";
  const rest = found.length - shown.length;
  const tail = rest > 0 ? ` and ${rest} more` : "";
  const words = found.length ? `${head}${shown.map(jobWords).join(", ")}${tail}` : "";
  if (line.title !== words) {
    line.title = words;
    if (BELOW_GATEWAY && words) fill(line, head, shown, tail);
    else line.textContent = words;
  }
  line.querySelectorAll("a").forEach((link, index) => {
    const address = `${jobAddress(whole(shown[index]))}${fragment}`;
    if (link.getAttribute("href") !== address) link.setAttribute("href", address);
  });
}

function fill(line, head, jobs, tail) {
  line.replaceChildren(head);
  jobs.forEach((job, index) => {
    if (index) line.append(", ");
    element("a", "", line).textContent = jobWords(job);
  });
  line.append(tail);
}
