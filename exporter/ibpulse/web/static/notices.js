// Notices above the picture: ports with a problem, and a view that the history does not reach.

import { apiAddress } from "./address.js";
import { element } from "./elements.js";
import { clock, duration, fullTime } from "./format.js";
import { troubles } from "./states.js";

/** The sentence for a held view that is older than the history, empty for any other. */
function tooOld(page) {
  const { view, reach } = page;
  if (!view.held || view.endMs > reach.fromMs) return "";
  return (
    `This view (${duration(view.spanMs)} from ${fullTime(view.endMs - view.spanMs)}) is older than the history of ` +
    `${duration(page.store.layout.history_ms)}, which begins at ${clock(reach.fromMs)}.`
  );
}

/** Fill the list of notices for the time that the page shows; nothing is touched if they are the same. */
export function showNotices(list, page) {
  const old = tooOld(page);
  const found = old ? [old] : troubles(page.store.layout, page.momentMs);
  const key = JSON.stringify(found);
  if (list.dataset.key === key) return;
  list.dataset.key = key;
  list.replaceChildren();
  for (const text of found) element("li", "", list).textContent = text;
  // listed among the links of the page if captures are on
  if (old && document.querySelector(`.links a[href="${apiAddress("captures")}"]`)) {
    const link = element("a", "", list.firstChild);
    link.before(" Only captures go back further: ");
    link.href = apiAddress("captures");
    link.textContent = "list of captures";
  }
}
