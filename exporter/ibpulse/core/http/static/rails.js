// The ports next to the picture: their names, current rates and peaks, and the menu to choose them.

import { element, put } from "./elements.js";
import { percent, rate as rateWords, rateParts, shorten } from "./format.js";
import { helpButton } from "./help.js";
import { MILD_WORDS, jobWords, jobsAt, knownAt, label, since, stateAt } from "./states.js";

const WAYS = ["transmit", "receive"];
const CLOSE_ROWS = 12;
const MANY_ROWS = 40;
// characters of the id of a job, and those on a narrow screen
const ID_LENGTHS = { whole: 12, tail: 6 };
const UNKNOWN_ROLE = "unknown";
const ABOUT_BARS =
  "Rate of each row over the last half second, as a part of its line rate; while the view is held, that of the column " +
  "under the pointer, or else of the last one. The line across a live bar is the highest sample of the shortest window. " +
  "The number is the sum of the bars. A striped bar has no data; a lattice is a link that is down.";

/** The ports to show: the chosen ones, else the rails of a time, else all ports. */
export function shownPorts(layout, chosen, ms) {
  if (chosen) return layout.ports.filter((port) => chosen.includes(port.port));
  const rails = layout.ports.filter((port) => stateAt(port, ms).rail && knownAt(port, ms));
  return rails.length ? rails : layout.ports;
}

export class Rails {
  #names;
  #bars;
  #items = [];
  #layout = null;
  #key = "";

  constructor(names, bars) {
    this.#names = names;
    this.#bars = bars;
  }

  /** Lay out names and bars again if the rows or the states of their ports have changed. */
  arrange(layout, rows, unit) {
    const key = JSON.stringify(rows.map((row) => [row.port.port, row.way, row.top, unit]));
    if (key === this.#key && layout === this.#layout) return;
    [this.#key, this.#layout] = [key, layout];
    const count = rows.filter((row) => row.first).length;
    const plot = this.#names.parentElement;
    plot.style.setProperty("--ports", count);
    plot.dataset.rows = count > CLOSE_ROWS ? "close" : "";
    plot.dataset.many = count > MANY_ROWS ? "yes" : "";
    this.#names.replaceChildren();
    this.#bars.replaceChildren();
    this.#explain([...new Set(rows.map((row) => row.way))]);
    const ports = rows.filter((row) => row.first).map((row) => row.port);
    const short = shorten(ports.map((port) => port.port));
    this.#items = ports.map((port, index) =>
      this.#item(
        port,
        short[index],
        rows.filter((row) => row.port === port),
        unit,
      ),
    );
  }

  /** The legend of the bars. */
  #explain(ways) {
    const head = this.#bars.parentElement.querySelector(".bars-head");
    if (!head) return;
    head.replaceChildren();
    for (const way of ways) {
      element("span", `key ${WAYS[way]}`, head);
      element("span", "", head).textContent = WAYS[way] === "transmit" ? "Transmit" : "Receive";
    }
    helpButton(head, "the bars", ABOUT_BARS);
  }

  #item(port, short, rows, unit) {
    const name = element("li", "", this.#names);
    const mark = element("span", "mark", name);
    const job = element("span", "job", name);
    const ids = ["whole", "tail"].map((form) => element("span", form, job));
    const sharers = element("span", "", job);
    mark.hidden = job.hidden = true;
    this.entitle(name, port, short);
    const item = element("li", rows.length === 1 ? "single" : "", this.#bars);
    const tracks = element("div", "tracks", item);
    const bars = rows.map((row) => {
      const track = element("div", `track ${WAYS[row.way]}`, tracks);
      track.title = `${WAYS[row.way]}: current rate; the mark is the highest recent sample`;
      return { row, track, fill: element("div", "fill", track), peak: element("div", "peak", track) };
    });
    const rate = element("span", "rate", item);
    rate.title = rows.length > 1 ? "Transmit + receive" : WAYS[rows[0].way];
    const labels = { job, ids, sharers, mark };
    return { port, unit, name, labels, bars, number: element("span", "", rate), small: element("small", "", rate) };
  }

  /** `rate(series)` returns bytes per second at `ms`, NaN for missing data; `peaks` are by port and direction. */
  show(rate, peaks, unit, ms) {
    for (const item of this.#items) {
      const rates = item.bars.map(({ row }) => rate(row.series));
      const state = stateAt(item.port, ms);
      item.bars.forEach((bar, index) =>
        this.#draw(bar, state, rates[index], peaks(item.port.port)?.[WAYS[bar.row.way]]),
      );
      const sum = rates.reduce((a, b) => a + b, 0);
      const line = state.rate * rates.length;
      const known = !Number.isNaN(sum) && (unit !== "ratio" || line > 0);
      const [number, name] = unit === "ratio" ? percent(sum / line, 0).split(" ") : rateParts(sum, unit);
      put(item.number, known ? number : "–");
      put(item.small, known ? ` ${name}` : "");
    }
  }

  #draw(bar, state, rate, peak) {
    const top = bar.row.top ?? state.rate;
    const unknown = Number.isNaN(rate) || !top;
    const down = rate === 0 && !state.active;
    bar.track.classList.toggle("unknown", unknown && !down);
    bar.track.classList.toggle("down", down);
    bar.fill.style.transform = `scaleX(${unknown ? 0 : Math.min(1, rate / top)})`;
    bar.peak.hidden = peak === null || peak === undefined || !top;
    if (!bar.peak.hidden) bar.peak.style.left = `${Math.max(1, Math.min(100, (peak / top) * 100))}%`;
  }

  /** Label the ports at a time; `numbers` are the ports of a summary of that time. */
  standing(numbers, ms) {
    const found = new Map((numbers ?? []).map((port) => [port.port, port]));
    for (const { port, name, labels } of this.#items) {
      const { title, word, group, more } = this.words(port, ms, found.get(port.port));
      if (name.title !== title) name.title = title;
      put(labels.mark, word);
      labels.mark.dataset.tone = MILD_WORDS.includes(word) ? "mild" : "";
      labels.mark.hidden = !word;
      for (const id of labels.ids) put(id, endOf(group, ID_LENGTHS[id.className]));
      put(labels.sharers, more);
      labels.job.hidden = !group;
    }
  }

  /** A port in a saved picture. */
  caption(port) {
    return port.port;
  }

  /** Write the name of a port, whole and as short as the others allow. */
  entitle(item, port, short) {
    element("span", "long", item).textContent = port.port;
    element("span", "short", item).textContent = short;
  }

  /**
   * What is said of a port at a time: the tooltip, a word if it is not well, and the id of its job, with the number of
   * those that share it.
   */
  words(port, ms, numbers) {
    const state = stateAt(port, ms);
    const jobs = jobsAt(port, ms);
    const owner = jobs.length ? `, job ${jobs.map(jobWords).join(", ")}` : "";
    return {
      title: `${port.port}: ${state.state} ${since(state)}, ${lineRate(state)}${owner}`.replace(" ,", ","),
      word: label(state, numbers),
      group: jobs[0]?.job_id ?? "",
      more: jobs.length > 1 ? ` +${jobs.length - 1}` : "",
    };
  }
}

/** The line rate of a state, as text. */
export function lineRate(state) {
  return state.rate ? `${rateWords(state.rate)} in each direction` : "unknown data rate";
}

/** An id of at most `most` characters; of a longer one the end, which distinguishes it. */
function endOf(id, most) {
  return id.length > most ? `…${id.slice(1 - most)}` : id;
}

function roleText({ rail, role }) {
  if (rail) return "rail";
  return role && role !== UNKNOWN_ROLE ? role : "not a rail";
}

/** Fill the menu of ports; `choose` is called with the names, or null for the default. */
export function showChoice(sheet, layout, chosen, ms, choose) {
  const shown = new Set(shownPorts(layout, chosen, ms).map((port) => port.port));
  const entries = layout.ports.map((port) => [port.port, roleText(stateAt(port, ms)), shown.has(port.port)]);
  fillMenu(sheet, entries, "Rails only", choose, portGroups(layout, ms));
}

/** Names of ports by what they have in common at a time: a job, or a role that not all have. */
export function portGroups(layout, ms) {
  const groups = new Map();
  const add = (name, port) => groups.set(name, [...(groups.get(name) ?? []), port.port]);
  for (const port of layout.ports) {
    for (const job of jobsAt(port, ms)) add(`Job ${jobWords(job)}`, port);
    add(`Role ${stateAt(port, ms).role ?? UNKNOWN_ROLE}`, port);
  }
  return [...groups].filter(([, names]) => names.length < layout.ports.length);
}

/**
 * Fill a menu with names to choose from: [name, remark, whether it is chosen] each, a button for the default, and one
 * for each of `groups`: [its name, names].
 */
export function fillMenu(sheet, entries, usualWords, choose, groups = []) {
  // the same boxes keep the focus
  const key = JSON.stringify([usualWords, groups, entries.map(([name, remark]) => [name, remark])]);
  if (sheet.dataset.key === key) {
    sheet.querySelectorAll("input").forEach((box, index) => {
      box.checked = entries[index][2];
    });
    return;
  }
  sheet.dataset.key = key;
  sheet.replaceChildren();
  const boxes = entries.map(([name, remark, checked]) => {
    const label = element("label", "", sheet);
    const box = element("input", "", label);
    Object.assign(box, { type: "checkbox", checked, value: name });
    element("code", "", label).textContent = name;
    element("span", "soft", label).textContent = remark;
    return box;
  });
  const usual = element("button", "", sheet);
  usual.textContent = usualWords;
  usual.addEventListener("click", () => choose(null));
  const holder = groups.length ? element("div", "groups", sheet) : null;
  for (const [name, names] of groups) {
    const button = element("button", "", holder);
    button.textContent = name;
    button.addEventListener("click", () => choose(names));
  }
  sheet.onchange = () => {
    const names = boxes.filter((box) => box.checked).map((box) => box.value);
    if (names.length) choose(names);
    else sheet.querySelector("input").checked = true;
  };
}
