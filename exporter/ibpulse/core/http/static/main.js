// The live page of a node: connects stream, picture, statistics and controls.

import { Controls } from "./controls.js";
import { Happenings } from "./happenings.js";
import { showHealth } from "./health.js";
import { LivePage } from "./live_page.js";
import { Numbers } from "./numbers.js";
import { showTable } from "./table.js";
import { View } from "./view.js";

const byId = (id) => document.getElementById(id);

class NodePage extends LivePage {
  constructor() {
    super(new View());
    this.statistics = new Numbers(this);
    this.controls = new Controls(this);
    this.happenings = new Happenings(this);
    this.begin();
  }

  happen(events) {
    super.happen(events);
    this.happenings.add(events);
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
