// Tables of the home page of a gateway, whose cells may lead to other pages.

import { element } from "./elements.js";

const MOST_JOBS = 3;

/** Fill a table; the first cell of a row names it. */
export function fill(table, heads, rows) {
  const focused = table.contains(document.activeElement) ? placeOf(document.activeElement) : "";
  table.replaceChildren();
  const head = element("tr", "", element("thead", "", table));
  for (const text of heads) Object.assign(element("th", "", head), { textContent: text, scope: "col" });
  const body = element("tbody", "", table);
  for (const { cells, tone } of rows) {
    const row = element("tr", "", body);
    cells.forEach((cell, index) => {
      const holder = element(index ? "td" : "th", "", row);
      if (!index) holder.scope = "row";
      if (cell.toned && ["bad", "warn"].includes(tone)) holder.className = tone;
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
