// Statistics of a span of samples, from the arrays of /api/v1/window.

import { readNpy } from "./history.js";

// of a window, if the server allows as many
const MOST_VALUES = 1_000_000;
const TOO_MANY = 422;

/** The samples of a span as `{about, values}`, or `{problem}` as a sentence; as fine as the server allows. */
export async function fetchSpan(page, { fromMs, toMs }, parameters = {}, most = MOST_VALUES) {
  const series = 2 * Math.max(1, page.shown.length);
  const points = Math.max(2, Math.floor(most / series) - 1);
  const bound = (toMs - fromMs) / page.store.intervalMs > points ? { max_points: points } : {};
  const query = { from: Math.round(fromMs), to: Math.round(toMs), format: "npy", ...parameters, ...bound };
  const only = new URLSearchParams(page.shownSelection).toString();
  try {
    const answer = await fetch(`${page.address("window", query)}${only && `&${only}`}`, { cache: "no-store" });
    if (!answer.ok) {
      const problem = await answer.json();
      const limit = problem.bound?.limit;
      if (answer.status === TOO_MANY && limit && limit < most) return fetchSpan(page, { fromMs, toMs }, parameters, limit);
      return { problem: problem.detail };
    }
    const about = JSON.parse(answer.headers.get("X-Ibpulse-Window"));
    return { about, values: readNpy(await answer.arrayBuffer()) };
  } catch {
    return { problem: "No response from the server." };
  }
}

/** Number, sum and highest of the good values of each series. */
export function seriesStatistics(about, values) {
  return about.series.map((name, row) => {
    const [port, way] = [name.slice(0, name.lastIndexOf(" ")), name.slice(name.lastIndexOf(" ") + 1)];
    const found = { port, way, count: 0, missing: 0, sum: 0, peak: NaN };
    for (const value of values.subarray(row * about.points, (row + 1) * about.points)) {
      if (value !== value) found.missing += 1;
      else {
        found.count += 1;
        found.sum += value;
        if (!(found.peak >= value)) found.peak = value;
      }
    }
    return { ...found, mean: found.count ? found.sum / found.count : NaN };
  });
}

/**
 * The node in a span, from the means of bins and from their highest samples, arrays of the same shape: bytes and mean of
 * each direction over the samples that are there, and the part of values that is missing. `peak` is the highest value of
 * the sum of all series: of single samples their certain part, of wider bins their mean.
 */
export function spanStatistics(about, means, highest) {
  const tops = seriesStatistics(about, highest);
  const series = seriesStatistics(about, means).map((each, row) => ({ ...each, peak: tops[row].peak }));
  const seconds = about.resolution_ms / 1000;
  const of = (way) => series.filter((each) => each.way === way);
  const total = (list, member) => list.reduce((sum, each) => sum + (each[member] || 0), 0);
  const ways = Object.fromEntries(
    ["transmit", "receive"].map((way) => [way, { mean: meanOf(of(way)), bytes: total(of(way), "sum") * seconds }]),
  );
  const all = about.points * about.series.length;
  const single = about.resolution_ms === about.interval_ms;
  const missing = all ? total(series, "missing") / all : NaN;
  return { series, ...ways, single, peak: peakOf(about, single ? highest : means), missing, all };
}

/** The sum of the means; NaN if that of a series is unknown, or without any. */
function meanOf(list) {
  return list.length ? list.reduce((sum, each) => sum + each.mean, 0) : NaN;
}

function peakOf({ points, series }, values) {
  let peak = NaN;
  for (let at = 0; at < points; at += 1) {
    let sum = 0;
    for (let row = 0; row < series.length; row += 1) sum += values[row * points + at];
    if (!(peak >= sum) && sum === sum) peak = sum;
  }
  return peak;
}
