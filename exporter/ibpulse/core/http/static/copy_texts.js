// Commands and queries for the samples of a span, to paste elsewhere.

const LEAST_PROMETHEUS_MS = 60_000;

/** A command that prints the samples as CSV. `address` is the whole URL of the window as CSV. */
export function curlText(address) {
  return `curl -fsS ${quoted(address)}`;
}

/** Python that reads the samples as a data frame with columns port, direction and unit. */
export function pandasText(address) {
  return [
    "import pandas as pd",
    "",
    `rates = pd.read_csv(${JSON.stringify(address)}, index_col="time_ms")`,
    'rates.index = pd.to_datetime(rates.index, unit="ms", utc=True)',
    "rates.columns = rates.columns.str.split(expand=True)",
    "",
  ].join("\n");
}

/**
 * A query for the mean rate of each port in a span. Prometheus has no single samples, so it covers at least a minute.
 * `node` is the name of the target; `direction` is `both` for transmit and receive.
 */
export function promqlText({ fromMs, toMs }, ports, direction) {
  const ms = Math.max(LEAST_PROMETHEUS_MS, toMs - fromMs);
  const range = `[${Math.ceil(ms / 1000)}s] @ ${(toMs / 1000).toFixed(3)}`;
  const devices = [...new Set(ports.map((port) => port.slice(0, port.lastIndexOf(":"))))].map(escaped).join("|");
  const ways = direction === "both" ? ["transmit", "receive"] : [direction];
  const rates = ways.map((way) => `rate(ibpulse_port_${way}_bytes_total{device=~"${devices}"}${range})`);
  return `sum by (instance, device, port) (\n  ${rates.join("\n  + ")}\n)`;
}

/** An argument for a shell. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** A name in a regular expression within a PromQL string. */
function escaped(name) {
  return name.replace(/[.+*?()[\]{}|^$\\]/g, "\\\\$&");
}
