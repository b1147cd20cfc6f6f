// Dashboard variables and macros, as Grafana fills them in before a query leaves the browser.
import { dateTime, rangeUtil, TimeRange } from "@grafana/data";

export type Values = Record<string, string[]>; // ["$__all"] stands for All

export async function resolveVariables(board: any, given: Values): Promise<Values> {
  const values: Values = {};
  for (const v of board.templating.list) {
    if (given[v.name]) values[v.name] = given[v.name];
    else if (v.type === "datasource") values[v.name] = ["ds"];
    else if (v.type === "custom") values[v.name] = [v.current?.value ?? v.query.split(",")[0]];
    else if (v.type === "textbox") values[v.name] = [v.query ?? ""];
    else if (v.type === "query") {
      const options = await labelValues(v, values, board);
      // Grafana takes the first option unless the board says otherwise, and all of none
      const all = v.includeAll && (v.current?.value?.[0] === "$__all" || !options.length);
      values[v.name] = all ? ["$__all"] : [options[0] ?? ""];
      values["__options_" + v.name] = options;
    }
  }
  return values;
}

async function labelValues(v: any, values: Values, board: any): Promise<string[]> {
  const m = /^label_values\((.*), *(\w+)\)$/.exec(v.query)!;
  const match = interpolate(m[1], values, board);
  const answer = await (await fetch(`/prom/api/v1/label/${m[2]}/values?match[]=${encodeURIComponent(match)}`)).json();
  if (!answer.data) throw new Error(`Prometheus: ${answer.error}`);
  return (answer.data as string[]).sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
}

const regexEscape = (s: string) => s.replace(/[\\^$*+?.()|[\]{}\/]/g, "\\\\$&");

/** For PromQL where `regex`, plain otherwise. */
export function interpolate(text: string, values: Values, board: any, extra: Record<string, string> = {}, regex = true): string {
  return text.replace(/\$\{(\w+)(?::\w+)?\}|\$(\w+)/g, (whole, braced, bare) => {
    const name = braced ?? bare;
    if (name in extra) return extra[name];
    const value = values[name];
    if (!value) return whole;
    const definition = board.templating.list.find((v: any) => v.name === name);
    if (value[0] === "$__all") return definition?.allValue ?? `(${(values["__options_" + name] ?? []).map(regexEscape).join("|")})`;
    if (!regex) return value.join(",");
    return definition?.multi ? (value.length > 1 ? `(${value.map(regexEscape).join("|")})` : regexEscape(value[0])) : value[0];
  });
}

export function timing(range: TimeRange, width: number, scrape = "5s") {
  const { interval, intervalMs } = rangeUtil.calculateInterval(range, Math.max(1, Math.floor(width)), scrape);
  const step = intervalMs / 1000;
  const scrapeS = rangeUtil.intervalToMs(scrape) / 1000;
  const rate = Math.max(step + scrapeS, 4 * scrapeS);
  const span = Math.round((range.to.valueOf() - range.from.valueOf()) / 1000);
  return {
    step,
    macros: {
      __interval: interval,
      __interval_ms: String(intervalMs),
      __rate_interval: `${rate}s`,
      __range: `${span}s`,
      __range_s: String(span),
      __range_ms: String(span * 1000),
    } as Record<string, string>,
  };
}

export const makeRange = (from: number, to: number): TimeRange => ({
  from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) },
});
