// The colour scale of the page, its saved pictures, and the colours of its theme for canvases.

import { SHORT_NAME } from "./address.js";
import { fitted, put } from "./elements.js";
import { columnSentence, paintLegend, savedPicture, zeroOf } from "./picture.js";

const byId = (id) => document.getElementById(id);

/** Paint the colour scale, and say what its colour of nothing means. */
export function paintScale(page) {
  const { canvas, context, scale } = fitted(byId("scale"));
  const { colouring, rows, view } = page;
  context.clearRect(0, 0, canvas.width, canvas.height);
  paintLegend(context, { x: 0, y: 0, width: canvas.width }, colouring, rows[0]?.top, view.unit, palette(), scale);
  const [zero, words] = zeroOf(colouring);
  byId("zero").style.background = zero;
  put(byId("zero-words"), words);
}

/** A picture of a span, as a promise of a PNG. */
export function pictureOf(page, span) {
  const { rows, store, view, colouring } = page;
  const widthMs = store.widthFor((span.toMs - span.fromMs) / byId("waterfall").width);
  const sentence = columnSentence(store.intervalMs, widthMs, view.direction);
  const caption = (port) => page.rails.caption(port);
  const look = { colours: palette(), ...colouring, unit: view.unit, top: rows[0]?.top, sentence, widthMs, events: page.events.list, caption };
  const words = { transmit: "transmit", receive: "receive", both: "transmit and receive" };
  const title = ["ibpulse", SHORT_NAME, words[view.direction]];
  if (store.layout.simulated) title.push("SIMULATED");
  return savedPicture(store, rows, span, look, title.join(" · "));
}

/** The theme's colours for canvases. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(
    ["ink", "soft", "line", "paper", "transmit", "receive"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
  );
}
