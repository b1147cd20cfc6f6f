// The live page of a node: connects stream, picture, statistics and controls.

import { Controls } from "./controls.js";
import { Happenings } from "./happenings.js";
import { showHealth } from "./health.js";
import { Limits } from "./limits.js";
import { LivePage } from "./live_page.js";
import { Numbers } from "./numbers.js";
import { placeStrips } from "./picture.js";
import { railJobs } from "./states.js";
import { showTable } from "./table.js";
import { Verdicts } from "./verdicts.js";
import { View } from "./view.js";

const byId = (id) => document.getElementById(id);

class NodePage extends LivePage {
  constructor() {
    super(new View());
    this.statistics = new Numbers(this);
    this.controls = new Controls(this);
    this.happenings = new Happenings(this);
    this.limits = new Limits(this);
    this.begin();
    this.verdicts = new Verdicts(this, (job) => `Job ${job.job_id}: `);
  }

  /** The jobs of now. */
  get jobs() {
    return railJobs(this.store.layout, Infinity);
  }

  happen(events) {
    super.happen(events);
    this.happenings.add(events);
  }

  get strip() {
    return this.limits?.height ?? 0;
  }

  paintSigns(context, box, rows, span, scale) {
    this.limits?.ask(span, performance.now());
    const names = rows.filter((row) => row.first).map((row) => row.port.port);
    const places = placeStrips(rows, box.y, box.height, scale, this.strip * scale);
    this.limits?.paint(context, names, places, span, box.width);
  }

  newSecond(second) {
    this.second = second;
    if (this.statistics.offer()) this.controls.show();
    showHealth(byId("health"), second);
    showTable(byId("table"), second, this.view.unit);
    this.statistics.show();
    if (this.view.held) this.attend();
  }
}

document.documentElement.dataset.script = "yes";
window.ibpulse = new NodePage();
