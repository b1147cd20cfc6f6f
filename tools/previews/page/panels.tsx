// One component per panel type.
import { DataFrame, FieldType, TimeRange, VizOrientation, applyNullInsertThreshold, cacheFieldDisplayNames, formattedValueToString, getActiveThreshold, getDisplayValueAlignmentFactors,
  getFieldDisplayName, getFieldDisplayValues, getValueFormat, outerJoinDataFrames } from "@grafana/data";
import { AxisPlacement, LegendDisplayMode, ScaleDirection, ScaleOrientation } from "@grafana/schema";
import { BarGauge, BigValue, TimeSeries, UPlotChart, UPlotConfigBuilder, VizLayout, VizLegend, VizRepeater, measureText, useTheme2 } from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import * as chromatic from "d3-scale-chromatic";
import type uPlot from "uplot";

export interface Props { panel: any; frames: DataFrame[]; width: number; height: number; range: TimeRange; timeZone: string; source: any; replace: (s: string) => string }

const hasValues = (frames: DataFrame[]) => frames.some((f) => f.fields.some((x) => x.type !== FieldType.time && x.values.some((v: any) => v != null)));

function Empty({ text, height }: { text?: string; height: number }) {
  return <div className="no-value" style={{ height, display: "flex", alignItems: "center", justifyContent: "center", textAlign: "center", padding: 8 }}>{text || "No data"}</div>;
}

export function Stat({ panel, frames, width, height, timeZone, source, replace }: Props) {
  const theme = useTheme2();
  const o = panel.options;
  const get = () => getFieldDisplayValues({ fieldConfig: source, reduceOptions: o.reduceOptions, replaceVariables: replace, theme, data: frames, sparkline: o.graphMode !== "none", timeZone });
  return (
    <VizRepeater getValues={get} getAlignmentFactors={getDisplayValueAlignmentFactors as any} width={width} height={height} source={frames} itemSpacing={3} renderCounter={0} autoGrid orientation={o.orientation ?? VizOrientation.Auto}
      renderValue={({ value, width, height, alignmentFactors, count, orientation }: any) => (
        <BigValue value={value.display} count={count} sparkline={value.sparkline} colorMode={o.colorMode} graphMode={o.graphMode} justifyMode={o.justifyMode} textMode={textMode(o, value)} alignmentFactors={alignmentFactors}
          parentOrientation={orientation} width={width} height={height} theme={theme} text={o.text} percentChangeColorMode={o.percentChangeColorMode} disableWideLayout={!o.wideLayout} />
      )} />
  );
}
const textMode = (o: any, _: any) => o.textMode;

export function Bars({ panel, frames, width, height, timeZone, source, replace }: Props) {
  const theme = useTheme2();
  const o = panel.options;
  const get = () => getFieldDisplayValues({ fieldConfig: source, reduceOptions: o.reduceOptions, replaceVariables: replace, theme, data: frames, timeZone });
  return <VizRepeater getValues={get} width={width} height={height} source={frames} renderCounter={0} orientation={o.orientation} itemSpacing={8}
    renderValue={({ value, width, height, orientation }: any) => <BarGauge value={value.display} width={width} height={height} orientation={orientation} field={value.field} display={value.view?.getFieldDisplayProcessor(value.colIndex)} theme={theme} displayMode={o.displayMode} />} />;
}

/** Grafana's panel inserts a null into each gap, and makes null of NaN and of infinity; with one NaN the axis stays empty. */
const graphable = (frames: DataFrame[], range: TimeRange) => frames
  .map((frame) => applyNullInsertThreshold({ frame, refFieldPseudoMin: range.from.valueOf(), refFieldPseudoMax: range.to.valueOf() }))
  .map((f) => ({ ...f, fields: f.fields.map((x) => (x.type === FieldType.number ? { ...x, values: x.values.map((v: any) => (v == null || Number.isFinite(v) ? v : null)) } : x)) }));

export function Series({ panel, frames, width, height, range, timeZone, source }: Props) {
  if (!hasValues(frames)) return <Empty text={source.defaults.noValue} height={height} />;
  return <TimeSeries frames={graphable(frames, range)} width={width} height={height} timeRange={range} timeZone={timeZone} legend={panel.options.legend} options={panel.options} structureRev={1} />;
}

export function Table({ panel, frames, width, height, range, source }: Props) {
  if (!frames.length || !frames[0].length) return <Empty text={source.defaults.noValue} height={height} />;
  const o = panel.options;
  return <TableNG data={frames[o.frameIndex ?? 0]} width={width} height={height} noHeader={!o.showHeader} showTypeIcons={o.showTypeIcons} sortBy={o.sortBy} cellHeight={o.cellHeight} timeRange={range} fieldConfig={source} structureRev={1} />;
}

const xAxis = (b: UPlotConfigBuilder, range: TimeRange, theme: any, timeZone: string) => {
  b.addScale({ scaleKey: "x", isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right, range: () => [range.from.valueOf(), range.to.valueOf()] });
  b.addAxis({ scaleKey: "x", isTime: true, placement: AxisPlacement.Bottom, timeZone, theme });
};

/** Rows of frames, by time, as Grafana joins them. */
function joined(frames: DataFrame[]): DataFrame {
  cacheFieldDisplayNames(frames);
  return frames.length > 1 ? outerJoinDataFrames({ frames, keepDisplayNames: true })! : frames[0];
}

function palette(color: any): string[] {
  if (color.mode === "opacity") {
    const alpha = (share: number) => (color.scale === "exponential" ? share ** color.exponent : share);
    const [r, g, b] = [1, 3, 5].map((place) => parseInt(color.fill.slice(place, place + 2), 16));
    return Array.from({ length: color.steps }, (_, i) => `rgba(${r}, ${g}, ${b}, ${alpha(i / (color.steps - 1))})`);
  }
  const fn = (chromatic as any)[`interpolate${color.scheme}`];
  const colours = Array.from({ length: color.steps }, (_, i) => fn(i / (color.steps - 1)));
  // Grafana inverts diverging schemes in both themes, others in one of them
  if (color.scheme !== "RdYlBu") throw new Error(`${color.scheme}: whether Grafana inverts it is not known here`);
  return colours.reverse();
}

export function Heatmap({ panel, frames, width, height, range, timeZone, source }: Props) {
  const theme = useTheme2();
  if (!hasValues(frames)) return <Empty text={source.defaults.noValue} height={height} />;
  const o = panel.options;
  const frame = joined(frames);
  const rows = frame.fields.filter((f) => f.type === FieldType.number);
  const times = frame.fields[0].values as number[];
  const le = rows[0].labels?.le != null;
  const yFormat = getValueFormat(o.yAxis.unit ?? "short");
  const names = rows.map((f) => {
    const name = getFieldDisplayName(f, frame, frames);
    return Number.isNaN(Number(name)) ? name : formattedValueToString(yFormat(Number(name), o.yAxis.decimals));
  });
  const all = rows.flatMap((f) => f.values as number[]).filter((v) => v != null && !Number.isNaN(v) && v > (o.filterValues?.le ?? -Infinity) && v < (o.filterValues?.ge ?? Infinity));
  const min = o.color.min ?? all.reduce((a, b) => Math.min(a, b), Infinity);
  const max = o.color.max ?? all.reduce((a, b) => Math.max(a, b), -Infinity);
  const colours = palette(o.color);
  // Grafana takes the first distance between columns for all of them
  const size = times.length > 1 ? times[1] - times[0] : range.to.valueOf() - range.from.valueOf();
  const b = new UPlotConfigBuilder(timeZone);
  xAxis(b, range, theme, timeZone);
  b.addScale({ scaleKey: "y", orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => (le ? [-1, rows.length - 1] : [-0.5, rows.length - 0.5]) });
  b.addAxis({
    scaleKey: "y", placement: AxisPlacement.Left, theme,
    // the words of the rows are wider than measured
    size: ((_u: uPlot, words: string[] | null) => 20 + Math.max(0, ...(words ?? []).map((word) => measureText(word, 12).width))) as any,
    splits: (u: uPlot) => {
      let s = rows.map((_, i) => i);
      if (le) s.unshift(-1);
      while (s.length > 3 && (u.height - 15) / s.length < 10) s = s.filter((_, i) => i % 2 === 0);
      return s;
    },
    values: (_u: uPlot, s: number[]) => s.map((v) => (v < 0 ? formattedValueToString(yFormat(0)) : names[v] ?? "")),
  });
  b.addHook("draw", (u: uPlot) => {
    const c = u.ctx;
    c.save();
    c.beginPath();
    c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    c.clip();
    rows.forEach((f, row) => {
      const top = u.valToPos(le ? row : row + 0.5, "y", true);
      const bottom = u.valToPos(le ? row - 1 : row - 0.5, "y", true);
      times.forEach((t, i) => {
        const v = f.values[i];
        if (v == null || Number.isNaN(v) || v <= (o.filterValues?.le ?? -Infinity)) return;
        const right = u.valToPos(t, "x", true);
        const left = u.valToPos(t - size, "x", true);
        c.fillStyle = colours[v <= min ? 0 : v >= max ? colours.length - 1 : Math.min(colours.length - 1, Math.floor((colours.length * (v - min)) / (max - min)))];
        c.fillRect(Math.round(left), Math.round(top), Math.max(1, Math.round(right) - Math.round(left)), Math.max(1, Math.round(bottom) - Math.round(top)));
      });
    });
    c.restore();
  });
  b.setPrepData(() => [times, times.map(() => null)] as any);
  b.addSeries({ scaleKey: "y", theme, show: true, lineWidth: 0, pathBuilder: () => null, pointsBuilder: () => false } as any);
  const cell = getValueFormat(o.cellValues?.unit ?? "short");
  const scale = o.legend?.show ? 44 : 0;
  return (
    <div>
      <UPlotChart config={b} data={[times, times.map(() => null)] as any} width={width} height={height - scale} />
      {scale > 0 && (
        <div style={{ height: scale, width: 300, padding: "6px 0 0 8px", fontSize: 12, color: theme.colors.text.secondary }}>
          <div style={{ height: 9, borderRadius: 2, background: `linear-gradient(90deg, ${colours.join(", ")})` }} />
          <div style={{ display: "flex", justifyContent: "space-between" }}><span>{formattedValueToString(cell(min))}</span><span>{formattedValueToString(cell(max))}</span></div>
        </div>
      )}
    </div>
  );
}

/** State timeline; `panel.options.mergeValues` with colours by threshold shows thresholds and drops the mappings, as Grafana does. */
export function States({ panel, frames, width, height, range, timeZone, source }: Props) {
  const theme = useTheme2();
  if (!hasValues(frames)) return <Empty text={source.defaults.noValue} height={height} />;
  const o = panel.options;
  const per = frames.map((f) => applyNullInsertThreshold({ frame: f, refFieldPseudoMin: range.from.valueOf(), refFieldPseudoMax: range.to.valueOf() }) as DataFrame);
  const frame = joined(per);
  const rows = frame.fields.filter((f) => f.type === FieldType.number).slice(0, o.perPage ?? 20);
  const times = frame.fields[0].values as number[];
  const d = source.defaults;
  const byThreshold = o.mergeValues && d.color?.mode === "thresholds";
  const unit = getValueFormat(d.unit ?? "");
  const steps = d.thresholds.steps as any[];
  const stepLabel = (i: number) => (i === 0 && steps.length > 1 ? `< ${formattedValueToString(unit(steps[1].value))}` : `${formattedValueToString(unit(steps[i].value))}+`);
  const state = (f: any, v: any) => {
    if (byThreshold) {
      const i = steps.indexOf(getActiveThreshold(v, steps));
      return { text: stepLabel(i), color: theme.visualization.getColorByName(steps[i].color) };
    }
    const shown = f.display(v);
    return { text: formattedValueToString(shown), color: shown.color ?? "#808080" };
  };
  const legend: Map<string, string> = new Map();
  if (byThreshold) steps.forEach((s, i) => legend.set(stepLabel(i), theme.visualization.getColorByName(s.color)));
  else rows.forEach((f) => f.values.forEach((v: any) => { if (v != null) { const s = state(f, v); legend.set(s.text, s.color); } }));
  const b = new UPlotConfigBuilder(timeZone);
  xAxis(b, range, theme, timeZone);
  b.addScale({ scaleKey: "y", orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, range: () => [0, rows.length] });
  b.addAxis({ scaleKey: "y", placement: AxisPlacement.Left, theme, grid: { show: false }, ticks: { show: false }, gap: 16, splits: () => rows.map((_, i) => rows.length - i - 0.5), values: (_u: any, s: number[]) => s.map((v) => getFieldDisplayName(rows[Math.round(rows.length - v - 0.5)], frame, frames)) });
  b.addHook("draw", (u: uPlot) => {
    const c = u.ctx;
    c.save();
    c.beginPath();
    c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    c.clip();
    c.globalAlpha = (d.custom.fillOpacity ?? 70) / 100;
    rows.forEach((f, r) => {
      const middle = rows.length - r - 0.5;
      const top = u.valToPos(middle + o.rowHeight / 2, "y", true);
      const bottom = u.valToPos(middle - o.rowHeight / 2, "y", true);
      for (let i = 0; i < times.length; i++) {
        const v = f.values[i];
        if (v == null) continue;
        let j = i + 1;
        const here = state(f, v);
        while (j < times.length && (f.values[j] === undefined || (f.values[j] !== null && state(f, f.values[j]).text === here.text))) j++;
        const left = u.valToPos(times[i], "x", true);
        const right = u.valToPos(j < times.length ? times[j] : range.to.valueOf(), "x", true);
        c.fillStyle = here.color;
        c.fillRect(left, top, right - left, bottom - top);
        i = j - 1;
      }
    });
    c.restore();
  });
  b.setPrepData(() => [times, times.map(() => null)] as any);
  b.addSeries({ scaleKey: "y", theme, show: true, lineWidth: 0, pathBuilder: () => null, pointsBuilder: () => false } as any);
  const items = [...legend].map(([label, color]) => ({ label, color, yAxis: 1 }));
  return (
    <VizLayout width={width} height={height} legend={o.legend?.showLegend ? <VizLayout.Legend placement="bottom"><VizLegend placement="bottom" items={items} displayMode={LegendDisplayMode.List} readonly /></VizLayout.Legend> : null}>
      {(w: number, h: number) => <UPlotChart config={b} data={[times, times.map(() => null)] as any} width={w} height={h} />}
    </VizLayout>
  );
}

export const COMPONENTS: Record<string, (p: Props) => any> = { stat: Stat, timeseries: Series, table: Table, bargauge: Bars, heatmap: Heatmap, "state-timeline": States };
