// Buttons, menus, keys and pointers that change the view.

import { SHORT_NAME } from "./address.js";
import { MAPS } from "./colours.js";
import { duration } from "./format.js";
import { listKeys, watchKeys } from "./keys.js";
import { watchOverview, watchPicture } from "./pointer.js";
import { showChoice } from "./rails.js";

const ZOOM = 1.5;
const CYCLES = { d: ["direction", ["both", "transmit", "receive"]], u: ["unit", ["ratio", "bytes"]], c: ["map", MAPS] };

const byId = (id) => document.getElementById(id);

export class Controls {
  constructor(page) {
    this.page = page;
    this.view = page.view;
    this.#buttons();
    this.#save();
    watchKeys(this);
    watchPicture(byId("waterfall"), this);
    watchOverview(byId("overview"), (part) => this.seek(part));
    listKeys(byId("keys-list"), this);
    this.show();
  }

  #buttons() {
    byId("hold").addEventListener("click", () => this.toggle());
    byId("zoom-in").addEventListener("click", () => this.zoomBy(1 / ZOOM));
    byId("zoom-out").addEventListener("click", () => this.zoomBy(ZOOM));
    byId("help").addEventListener("click", () => this.help());
    for (const name of this.choices) {
      for (const button of document.querySelectorAll(`button[data-${name}]`)) {
        button.addEventListener("click", () => this.choose(name, button.dataset[name]));
      }
    }
    byId("windows").addEventListener("click", (event) => {
      if (event.target.dataset.window) this.view.change({ window: event.target.dataset.window });
    });
    byId("rails-menu").addEventListener("toggle", () => this.choice());
    document.addEventListener("pointerdown", (event) => {
      for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    });
  }

  /** The parts of the view that groups of buttons choose. */
  get choices() {
    return ["direction", "unit", "theme", "map"];
  }

  choose(name, value) {
    this.view.change({ [name]: value });
  }

  #save() {
    byId("save-menu").addEventListener("toggle", () => {
      byId("save-samples").href = this.samplesAddress();
    });
    byId("save-png").addEventListener("click", () => this.picture());
    byId("save-link").addEventListener("click", async () => {
      this.grab();
      const done = await navigator.clipboard?.writeText(location.href).then(
        () => true,
        () => false,
      );
      this.page.say(
        done
          ? "Link copied. It works as long as the view is within the history."
          : `Copy the link from the address bar: ${location.href}`,
      );
      byId("save-menu").open = false;
    });
  }

  /** The parameters of the window that has the samples in the view. */
  get samples() {
    const { span } = this.page;
    return { from: Math.round(span.fromMs), to: Math.round(span.toMs), format: "csv" };
  }

  /** URL of the samples in the view. */
  samplesAddress() {
    const { page, view } = this;
    const query = this.samples;
    if (view.direction !== "both") query.direction = view.direction;
    if (view.unit === "ratio") query.unit = "ratio";
    const only = new URLSearchParams(page.shownSelection).toString();
    return `${page.address("window", query)}${only && `&${only}`}`;
  }

  /** Show the state of the view on the controls. */
  show() {
    const { view, page } = this;
    byId("hold").setAttribute("aria-pressed", String(view.held));
    byId("hold-words").textContent = view.held ? "Go live" : "Hold";
    for (const name of [...this.choices, "window"]) {
      for (const button of document.querySelectorAll(`button[data-${name}]`)) {
        const chosen = name === "window" ? page.statistics.window : view[name];
        button.setAttribute("aria-pressed", String(button.dataset[name] === chosen));
      }
    }
    if (page.ready) byId("span").textContent = duration(page.span.toMs - page.span.fromMs);
  }

  choice() {
    const { page, view } = this;
    if (page.ready)
      showChoice(byId("rails"), page.store.layout, view.chosen, page.momentMs, (chosen) => {
        view.change({ chosen });
        if (!chosen) this.choice();
      });
  }

  // actions of keys, pointers and buttons

  toggle() {
    if (this.view.held) this.live();
    else this.grab();
  }

  /** Follow the newest samples; the default zoom has one column per sample. */
  live() {
    const usual = this.page.ready && Math.abs(this.view.spanMs - this.page.usualMs) < this.page.store.batchMs;
    this.view.change({ endMs: 0, spanMs: usual ? 0 : this.view.spanMs });
  }

  /** Hold the view at its position. */
  grab() {
    if (this.view.held || !this.page.ready) return;
    const span = this.page.span;
    this.view.change({ endMs: span.toMs, spanMs: span.toMs - span.fromMs });
  }

  /** Show another time span, kept within the history. */
  showSpan(fromMs, toMs) {
    const reach = this.page.reach;
    const spanMs = Math.min(this.view.limits.longestMs, Math.max(this.view.limits.shortestMs, toMs - fromMs));
    const end = Math.min(reach.toMs, Math.max(toMs, reach.fromMs + spanMs));
    this.view.change({ endMs: end, spanMs });
  }

  drag(part) {
    const by = (part - (this.dragged ?? 0)) * this.view.spanMs;
    this.dragged = part;
    this.showSpan(this.view.endMs - this.view.spanMs + by, this.view.endMs + by);
  }

  pan(part) {
    if (!this.page.ready) return;
    const span = this.page.span;
    const by = part * (span.toMs - span.fromMs);
    if (!this.view.held && by > 0) return;
    this.showSpan(span.fromMs + by, span.toMs + by);
  }

  seek(part) {
    if (!this.page.ready) return;
    const [reach, span] = [this.page.reach, this.page.span];
    const middle = reach.fromMs + Math.min(1, Math.max(0, part)) * (reach.toMs - reach.fromMs);
    const half = (span.toMs - span.fromMs) / 2;
    this.showSpan(middle - half, middle + half);
  }

  /** Zoom around a fraction of the width; the live view keeps its right edge. */
  zoomBy(factor, part = 0.5) {
    if (!this.page.ready) return;
    const span = this.page.span;
    const length = span.toMs - span.fromMs;
    if (!this.view.held) return this.view.change({ spanMs: length * factor });
    const fixed = span.fromMs + part * length;
    const wanted = Math.min(this.view.limits.longestMs, Math.max(this.view.limits.shortestMs, length * factor));
    this.showSpan(fixed - part * wanted, fixed + (1 - part) * wanted);
  }

  wheel(factor, part) {
    this.zoomBy(factor, part);
  }

  pinch(factor, part) {
    this.zoomBy(factor, part);
  }

  point(x, y) {
    this.page.reading.at(x, y, this.page.size, this.page.rows);
    this.page.draw();
  }

  leave() {
    this.dragged = 0;
    this.page.reading.leave();
    this.page.draw();
  }

  released() {
    this.dragged = 0;
  }

  scroll(key, event) {
    this.pan((key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 1 : 0.1));
  }

  zoom(key) {
    this.zoomBy("+=".includes(key) ? 1 / ZOOM : ZOOM);
  }

  natural() {
    if (!this.page.ready) return;
    if (this.view.held) this.zoomBy(this.page.naturalMs / this.view.spanMs);
    else this.view.change({ spanMs: 0 });
  }

  edge(key) {
    if (!this.page.ready) return;
    if (key === "End") return this.live();
    const span = this.page.span;
    const oldest = Math.max(this.page.reach.fromMs, this.page.store.firstMs());
    this.showSpan(oldest, oldest + span.toMs - span.fromMs);
  }

  step(key) {
    if (!this.page.ready) return;
    this.grab();
    const { page } = this;
    const place = page.reading.place ?? { x: 0.5, row: 0 };
    const samples = page.store.widthFor((page.span.toMs - page.span.fromMs) / page.size.width) / this.view.spanMs;
    page.reading.point(place.x + (key === "," ? -samples : samples), place.row);
    page.draw();
  }

  row(key) {
    if (!this.page.ready) return;
    const { reading, rows } = this.page;
    const place = reading.place ?? { x: 0.5, row: key === "ArrowUp" ? rows.length : -1 };
    const ways = rows.length / rows.filter((row) => row.first).length;
    const next = place.row + (key === "ArrowUp" ? -ways : reading.place ? ways : 1);
    reading.point(place.x, Math.min(rows.length - 1, Math.max(0, next)));
    this.page.draw();
  }

  cycle(key) {
    if (key === "t")
      return this.view.change({ theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark" });
    const [name, values] = key === "w" ? ["window", this.page.statistics.windows] : CYCLES[key];
    const now = key === "w" ? this.page.statistics.window : this.view[name];
    if (values.length) this.view.change({ [name]: values[(values.indexOf(now) + 1) % values.length] });
  }

  menu() {
    const menu = byId("rails-menu");
    menu.open = !menu.open;
    if (menu.open) setTimeout(() => menu.querySelector("input")?.focus());
  }

  async picture() {
    if (!this.page.ready) return;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await this.page.savedPicture());
    link.download = `ibpulse-${SHORT_NAME}-${Math.round(this.page.span.fromMs)}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    byId("save-menu").open = false;
  }

  fill() {
    if (document.fullscreenElement) document.exitFullscreen();
    else document.documentElement.requestFullscreen?.();
  }

  help() {
    byId("keys").showModal();
  }

  escape() {
    for (const menu of document.querySelectorAll(".menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    this.page.marks.close();
    this.leave();
  }
}
