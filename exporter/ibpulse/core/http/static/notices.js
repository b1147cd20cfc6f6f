// Notices above the picture: ports with a problem, and a view that the history does not reach.

import { apiAddress } from "./address.js";
import { askCaptures } from "./capture_requests.js";
import { element } from "./elements.js";
import { clock, duration, fullTime } from "./format.js";
import { troubles } from "./states.js";

// between a view and the trigger of a capture that may cover it
const NEAR_MS = 300_000;
const MOST_CAPTURES = 5;

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
    offerCaptures(list.firstChild, page.view, key, list);
  }
}

/** Link to the captures that were taken within the span of a view or close to it. */
async function offerCaptures(line, { endMs, spanMs }, key, list) {
  const found = await askCaptures("captures");
  if (list.dataset.key !== key) return;
  const near = (found.captures ?? []).filter((each) => each.trigger_ms > endMs - spanMs - NEAR_MS && each.trigger_ms < endMs + NEAR_MS);
  line.append(near.length ? " Captures taken within five minutes of it: " : " No capture was taken within five minutes of it. ");
  near.slice(0, MOST_CAPTURES).forEach(({ name, trigger_ms: ms, reason, ports }, index) => {
    if (index) line.append(", ");
    const link = element("a", "", line);
    Object.assign(link, { href: apiAddress(`captures/${encodeURIComponent(name)}`), download: name });
    link.textContent = `${clock(ms)} ${reason}${ports ? `, ${ports}` : ""}`;
  });
  if (near.length) line.append(". ");
  const all = element("a", "", line);
  Object.assign(all, { href: apiAddress("captures"), textContent: "All captures" });
}
