// Draws one board: /?board=node&theme=dark&width=1440&from=MS&to=MS&var-instance=...&expand=1
import { ThemeContext, createTheme, EventBusSrv, setTimeZoneResolver } from "@grafana/data";
import { initPluginTranslations } from "@grafana/i18n";
import { ErrorBoundary, GlobalStyles, PanelChrome, PanelContextProvider } from "@grafana/ui";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { dress, withDefaults } from "./config";
import { COMPONENTS } from "./panels";
import { queryPanel } from "./queries";
import { Values, interpolate, makeRange, resolveVariables } from "./variables";

const CELL = 30, GAP = 8;
const ask = new URLSearchParams(location.search);
const width = Number(ask.get("width") ?? 1440);
const timeZone = "utc";
setTimeZoneResolver(() => timeZone);
const w = window as any;
w.__done = 0; w.__problems = [];

const pixels = (cells: number) => ((width - 2 * 16 + GAP) / 24) * cells - GAP;
const tall = (cells: number) => cells * CELL + (cells - 1) * GAP;

/** The range of a panel with a relative time of its own, which is in minutes on our boards. */
function within(panel: any, range: any) {
  const own = /^(\d+)m$/.exec(panel.timeFrom ?? "");
  return own ? makeRange(range.to.valueOf() - Number(own[1]) * 60e3, range.to.valueOf()) : range;
}

function Panel({ panel, board, values, range, theme }: any) {
  const [state, setState] = useState<any>(null);
  const size = { width: pixels(panel.gridPos.w), height: tall(panel.gridPos.h) };
  const local: Values = { ...values, ...(panel.scopedVars ?? {}) };
  const replace = (s: string) => interpolate(s, local, board, {}, false);
  useEffect(() => {
    queryPanel(panel, board, local, within(panel, range), size.width).then((r) => {
      const source = withDefaults(panel.type, panel.fieldConfig);
      const frames = dress(r.frames, source, theme, timeZone, replace);
      for (const e of r.errors) w.__problems.push(`${panel.title}: ${e}`);
      if (!frames.some((f: any) => f.length)) w.__problems.push(`${panel.title}: empty`);
      setState({ frames, source, errors: r.errors });
    }).catch((e) => { w.__problems.push(`${panel.title}: ${e.stack}`); setState({ frames: [], source: withDefaults(panel.type, panel.fieldConfig), errors: [String(e)] }); });
  }, []);
  useEffect(() => { if (state) setTimeout(() => w.__done++, 150); }, [state]);
  const Component = COMPONENTS[panel.type];
  return (
    <div className="panel" data-title={panel.title} data-type={panel.type} style={{ ...size }}>
      <PanelChrome title={replace(panel.title)} description={panel.description ?? ""} {...size} padding={panel.type === "table" ? "none" : "md"} statusMessage={state?.errors.length ? state.errors.join("\n") : undefined}>
        {(iw: number, ih: number) => !state ? null : !Component ? <div>no component for {panel.type}</div> : (
          <ErrorBoundary>{({ error }: any) => error ? (w.__problems.push(`${panel.title}: ${error.stack}`), <pre>{String(error)}</pre>) : <Component panel={panel} frames={state.frames} width={iw} height={ih} range={within(panel, range)} timeZone={timeZone} source={state.source} replace={replace} />}</ErrorBoundary>
        )}
      </PanelChrome>
    </div>
  );
}

/** Top to bottom; a row that is collapsed stays so unless the page is asked to expand. */
function place(board: any, values: Values, expand: boolean) {
  const placed: any[] = [];
  let y = 0;
  let base = 0, open = true, deep = 0;
  const put = (p: any, origin: number) => { placed.push({ ...p, y: y + p.gridPos.y - origin }); deep = Math.max(deep, p.gridPos.y - origin + p.gridPos.h); };
  for (const p of board.panels) {
    if (p.type !== "row") { put(p, base); continue; }
    y += deep; deep = 0;
    placed.push({ ...p, y });
    y += 1;
    base = p.gridPos.y + 1;
    if (p.collapsed && expand) {
      const own: any[] = [];
      const repeats = p.panels.filter((q: any) => q.repeat);
      const plain = p.panels.filter((q: any) => !q.repeat);
      let line = 0;
      for (const q of repeats) {
        const options = (values[q.repeat]?.[0] === "$__all" ? (values["__options_" + q.repeat] as string[]) : values[q.repeat]) ?? [];
        const per = Math.min(q.maxPerRow ?? 4, options.length || 1);
        options.forEach((v, i) => own.push({ ...q, repeat: undefined, scopedVars: { [q.repeat]: [v] }, key: `${q.id}-${v}`, gridPos: { w: 24 / per, h: q.gridPos.h, x: (i % per) * (24 / per), y: line + Math.floor(i / per) * q.gridPos.h } }));
        line += Math.ceil(options.length / per) * q.gridPos.h;
      }
      own.forEach((q) => put(q, 0));
      plain.forEach((q: any) => put(q, p.gridPos.y + 1));
    }
  }
  return { placed, cells: y + deep };
}

async function main() {
  // axes measure their labels once, when they are drawn: the font has to be there before
  for (const [name, weight] of [["Regular", "400"], ["Medium", "500"]]) document.fonts.add(await new FontFace("Inter", `url(/public/fonts/inter/Inter-${name}.woff2)`, { weight }).load());
  await initPluginTranslations("preview");
  const board = await (await fetch(`/boards/${ask.get("board") ?? "node"}.json`)).json();
  const given: Values = {};
  ask.forEach((v, k) => { if (k.startsWith("var-")) (given[k.slice(4)] ??= []).push(v); });
  const values = await resolveVariables(board, given);
  const range = makeRange(Number(ask.get("from")) || Date.now() - 600e3, Number(ask.get("to")) || Date.now());
  const theme = createTheme({ colors: { mode: ask.get("theme") === "light" ? "light" : "dark" } } as any);
  const { placed, cells } = place(board, values, ask.get("expand") === "1");
  w.__expected = placed.filter((p) => p.type !== "row").length;
  const bus = new EventBusSrv();
  const shown = board.templating.list.filter((v: any) => v.type !== "datasource" && values[v.name]?.[0]).map((v: any) => `${v.label ?? v.name}: ${values[v.name]?.[0] === "$__all" ? "All" : values[v.name]?.join(" + ")}`);
  createRoot(document.getElementById("root")!).render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <PanelContextProvider value={{ eventsScope: "global", eventBus: bus } as any}>
        <div id="board" style={{ background: theme.colors.background.canvas, color: theme.colors.text.primary, width, padding: 16, boxSizing: "border-box" }}>
          <div style={{ display: "flex", gap: 8, height: 32, marginBottom: 8, fontSize: 12, color: theme.colors.text.secondary, whiteSpace: "nowrap", alignItems: "center" }}>
            <b style={{ color: theme.colors.text.primary, fontSize: 16 }}>{board.title}</b>
            {shown.map((s: string) => <span key={s} style={{ border: `1px solid ${theme.colors.border.medium}`, padding: "2px 8px", borderRadius: 2 }}>{s}</span>)}
            <span style={{ marginLeft: "auto" }}>{range.from.toISOString().slice(11, 19)} to {range.to.toISOString().slice(11, 19)} UTC, preview</span>
          </div>
          <div style={{ position: "relative", height: cells * (CELL + GAP) }}>
            {placed.map((p, i) => (
              <div key={p.key ?? p.id ?? i} style={{ position: "absolute", top: p.y * (CELL + GAP), left: ((width - 32 + GAP) / 24) * p.gridPos.x, width: p.type === "row" ? width - 32 : undefined }}>
                {p.type === "row" ? <div className="row" style={{ fontSize: 16, fontWeight: 500, padding: "3px 0" }}>{p.collapsed && ask.get("expand") !== "1" ? "▸" : "▾"} {p.title}{p.collapsed ? <span style={{ color: theme.colors.text.secondary, fontSize: 12 }}> ({p.panels.length} panels)</span> : null}</div>
                  : <Panel panel={p} board={board} values={values} range={range} theme={theme} />}
              </div>
            ))}
          </div>
        </div>
      </PanelContextProvider>
    </ThemeContext.Provider>
  );
}
main().catch((e) => { w.__problems.push(e.stack); w.__failed = true; });
