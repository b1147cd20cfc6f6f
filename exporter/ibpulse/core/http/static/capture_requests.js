// Requests about captures, and tables with links to them, for the pages of a node and of a job.

import { apiAddress } from "./address.js";
import { element } from "./elements.js";

/** An answer about the captures of what the page shows, or its `problem` as a sentence. */
export async function askCaptures(path, options = {}) {
  try {
    const answer = await fetch(apiAddress(path), { cache: "no-store", ...options });
    const found = await answer.json();
    return answer.ok ? found : { problem: found.detail };
  } catch {
    return { problem: "The server gave no usable answer." };
  }
}

/** Append a table; each cell is a text, or a function that fills it. */
export function fillTable(holder, name, heads, rows) {
  const wide = element("div", "wide", holder);
  Object.assign(wide, { tabIndex: 0, role: "region", ariaLabel: name });
  const table = element("table", "", wide);
  const head = element("tr", "", element("thead", "", table));
  for (const title of heads) element("th", "", head).textContent = title;
  const body = element("tbody", "", table);
  for (const cells of rows) {
    const row = element("tr", "", body);
    for (const cell of cells) {
      const made = element("td", "", row);
      if (typeof cell === "function") cell(made);
      else made.textContent = cell;
    }
  }
}

/** Append a link that downloads a capture of this node, or of another one of a job. */
export function addCapture(holder, name, words, node) {
  const href = apiAddress(`captures/${encodeURIComponent(name)}`, node);
  return Object.assign(element("a", "", holder), { href, download: name, textContent: words });
}

/** Append a link that downloads it as a trace for Perfetto. */
export function addTrace(holder, name, node) {
  holder.append(" ");
  const href = `${apiAddress(`captures/${encodeURIComponent(name)}`, node)}?format=perfetto`;
  const download = name.replace(/\.parquet$/, ".perfetto");
  return Object.assign(element("a", "", holder), { href, download, textContent: "for Perfetto" });
}
