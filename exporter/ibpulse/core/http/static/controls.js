// Buttons, menus, keys and pointers that change the view.

import { CHARTS } from "./chart.js";
import { MAPS } from "./colours.js";
import { duration } from "./format.js";
import { listKeys, watchKeys } from "./keys.js";
import { Navigation } from "./navigation.js";
import { watchOverview, watchPicture } from "./pointer.js";
import { showChoice } from "./rails.js";
import { Saving } from "./saving.js";

const ZOOM = 1.5;
const CYCLES = {
  d: ["direction", ["both", "transmit", "receive"]],
  u: ["unit", ["ratio", "bytes", "bits"]],
  c: ["map", MAPS],
  l: ["chart", CHARTS],
  m: ["values", ["rates", "differences"]],
};

const byId = (id) => document.getElementById(id);

export class Controls extends Navigation {
  constructor(page) {
    super(page);
    this.#buttons();
    this.saving = new Saving(page, this);
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
    return ["direction", "unit", "theme", "map", "chart", "values"];
  }

  choose(name, value) {
    this.view.change({ [name]: value });
  }

  /** The parameters of the window that has the samples in the selection, or else in the view. */
  get samples() {
    const { fromMs, toMs } = this.page.selected.chosen;
    return { from: Math.round(fromMs), to: Math.round(toMs), format: byId("save-samples").dataset.format };
  }

  /** URL of the samples in the selection, or else in the view. */
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
        this.choice();
      });
  }

  // actions of keys, pointers and buttons

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

  picture() {
    this.saving.picture();
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
    if (this.page.reading.place) return this.leave();
    this.page.marks.close();
    this.page.selected.clear();
    return undefined;
  }
}
