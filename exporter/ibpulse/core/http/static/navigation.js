// What moves the view in time, zooms it, and selects a span of it. Keys, pointers and buttons call it.

export class Navigation {
  constructor(page) {
    this.page = page;
    this.view = page.view;
  }

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

  selectBegin(part) {
    if (!this.page.ready) return;
    this.grab();
    this.page.selected.begin(part);
  }

  selectTo(part) {
    this.page.selected.extend(part);
  }

  selected() {
    this.page.selected.end();
  }

  /** Begin or end the selection at the sample that is read, or else in the middle of the view. */
  select(key) {
    if (!this.page.ready) return;
    this.grab();
    const { page } = this;
    const { fromMs, toMs } = page.span;
    page.selected.setEnd(key === "[" ? "begin" : "end", fromMs + (page.reading.place?.x ?? 0.5) * (toMs - fromMs));
  }

  /** Select the whole view. */
  selectAll() {
    if (!this.page.ready) return;
    this.grab();
    this.page.selected.set(this.page.span.fromMs, this.page.span.toMs);
  }

  unselect() {
    this.page.selected.clear();
  }

  /** Show only the selected span. */
  zoomIn() {
    const { span } = this.page.selected;
    if (!span) return this.page.say("Nothing is selected. Drag along the time axis, or press [ and ].");
    return this.showSpan(span.fromMs, span.toMs);
  }
}
