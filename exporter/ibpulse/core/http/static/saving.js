// The menu that saves or copies the selected span, or else the view: picture, samples, link, commands, queries.

import { SHORT_NAME } from "./address.js";
import { duration } from "./format.js";

const byId = (id) => document.getElementById(id);

export class Saving {
  #page;
  #controls;
  #menu = byId("save-menu");

  constructor(page, controls) {
    [this.#page, this.#controls] = [page, controls];
    this.#menu.addEventListener("toggle", () => this.#offer());
    byId("save-png").addEventListener("click", () => this.picture());
    byId("save-parquet").addEventListener("click", () => this.#parquet());
    byId("save-perfetto").addEventListener("click", () => this.#perfetto());
    const texts = { link: () => this.#link(), curl: (all) => all.curlText(this.#whole()), pandas: (all) => all.pandasText(this.#whole()) };
    texts.promql = (all) => all.promqlText(this.#span, page.shown.map((port) => port.port), page.view.direction);
    for (const [name, make] of Object.entries(texts)) {
      byId(`copy-${name}`)?.addEventListener("click", () => this.#copy(name, make));
    }
  }

  get #span() {
    return this.#page.selected.chosen;
  }

  /** The name of a file of this span. */
  name(ending) {
    return `ibpulse-${SHORT_NAME}-${Math.round(this.#span.fromMs)}.${ending}`.replaceAll(" ", "-");
  }

  /** Say what will be saved, and point the link to its samples. */
  #offer() {
    if (!this.#page.ready) return;
    const { span } = this.#page.selected;
    const { fromMs, toMs } = this.#span;
    byId("save-what").textContent = `${span ? "The selection" : "The view"}, ${duration(toMs - fromMs)}`;
    const link = byId("save-samples");
    link.href = this.#controls.samplesAddress();
    link.download = this.name(this.#controls.samples.format);
  }

  /** The whole URL of the samples. */
  #whole() {
    return new URL(this.#controls.samplesAddress(), location.href).href;
  }

  async #copy(name, make) {
    if (!this.#page.ready) return;
    // the span must not move on while it is written down
    this.#controls.grab();
    const text = make(await import("./copy_texts.js"));
    const done = await navigator.clipboard?.writeText(text).then(
      () => true,
      () => false,
    );
    this.#menu.open = false;
    const words = { link: "Link copied. It works as long as the view is within the history.", curl: "curl command copied.", pandas: "Python code copied." };
    words.promql = "PromQL query copied. It covers at least a minute, because Prometheus has no single samples.";
    this.#page.say(done ? words[name] : `Your browser does not allow copying. Copy this: ${text}`);
  }

  #link() {
    return location.href;
  }

  async picture() {
    if (!this.#page.ready) return;
    this.#save(await this.#page.savedPicture(this.#span), "png");
  }

  /** The samples of the span; null after saying why there are none. */
  async #fetch() {
    if (!this.#page.ready) return null;
    this.#controls.grab();
    const { fetchSpan } = await import("./span_statistics.js");
    const { direction } = this.#page.view;
    const found = await fetchSpan(this.#page, this.#span, { statistic: "mean", ...(direction === "both" ? {} : { direction }) });
    if (!found.problem) return found;
    this.#page.say(`No file was written. ${found.problem}`);
    return null;
  }

  async #parquet() {
    const [found, { writeParquet }] = await Promise.all([this.#fetch(), import("./parquet.js")]);
    if (found) this.#save(new Blob([writeParquet(found.about, found.values)], { type: "application/vnd.apache.parquet" }), "parquet");
  }

  async #perfetto() {
    const [found, { writePerfetto }] = await Promise.all([this.#fetch(), import("./perfetto.js")]);
    if (found) this.#save(new Blob(writePerfetto(found.about, found.values, SHORT_NAME), { type: "application/vnd.perfetto.trace" }), "perfetto");
  }

  #save(blob, ending) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = this.name(ending);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    this.#menu.open = false;
  }
}
