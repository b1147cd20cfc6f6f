// Formats numbers and times for people.

export const UNKNOWN = "–";

// bytes per second of each unit; a number has the second from a thousand of the first on
export const RATES = { "GB/s": 1e9, "TB/s": 1e12, "Gb/s": 1e9 / 8, "Tb/s": 1e12 / 8 };
const UNITS = { bytes: ["GB/s", "TB/s"], bits: ["Gb/s", "Tb/s"] };

/** A rate in a unit such as `GB/s` with three figures or so: 463, 46.3, 4.63. */
export function rateIn(bytesPerSecond, name) {
  if (bytesPerSecond === null || bytesPerSecond === undefined || Number.isNaN(bytesPerSecond)) return UNKNOWN;
  const value = bytesPerSecond / RATES[name];
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/** A rate and its unit, which is one of bits only if `unit` is `bits`: 463 GB/s, 3.50 TB/s, 3704 Gb/s. */
export function rateParts(bytesPerSecond, unit = "bytes") {
  const [small, large] = UNITS[unit] ?? UNITS.bytes;
  const name = Math.abs(bytesPerSecond ?? 0) / RATES[small] >= 999.5 ? large : small;
  return [rateIn(bytesPerSecond, name), name];
}

/** A rate with its unit, as text. */
export function rate(bytesPerSecond, unit = "bytes") {
  return rateParts(bytesPerSecond, unit).join(" ");
}

/** A number of bytes: 12.3 MB, 4.56 GB. */
export function bytesWords(bytes) {
  const [size, name] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"]].find(([each]) => bytes >= each) ?? [1e3, "kB"];
  return `${Number((bytes / size).toPrecision(3))} ${name}`;
}

/** The size of a file: 0.3 MB, 12 MB. */
export function megabytes(bytes) {
  const value = bytes / 1e6;
  return `${value.toFixed(value >= 9.95 ? 0 : 1)} MB`;
}

/** A ratio as a percentage: 74.7 %, 100 %. */
export function percent(ratio, digits = 1) {
  if (ratio === null || ratio === undefined || Number.isNaN(ratio)) return UNKNOWN;
  const text = (ratio * 100).toFixed(digits);
  return `${text.startsWith("100.") ? "100" : text} %`;
}

/** A plain number with the given number of decimals. */
export function decimal(value, digits = 2) {
  return value === null || value === undefined || Number.isNaN(value) ? UNKNOWN : value.toFixed(digits);
}

/** A duration in a suitable unit: 10 ms, 1.44 s, 5 min. */
export function duration(ms) {
  if (ms < 1) return `${Number((ms * 1000).toPrecision(3))} µs`;
  if (ms < 1000) return `${Number(ms.toPrecision(3))} ms`;
  if (ms < 120_000) return `${Number((ms / 1000).toPrecision(3))} s`;
  return `${Number((ms / 60_000).toPrecision(3))} min`;
}

/** Local time of day, with `digits` decimals of the second. */
export function clock(ms, digits = 0) {
  const date = new Date(ms);
  const pad = (value, width = 2) => String(value).padStart(width, "0");
  const time = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return digits ? `${time}.${pad(date.getMilliseconds(), 3).slice(0, digits)}` : time;
}

/** Local date: 2025-11-21. */
export function day(ms) {
  const date = new Date(ms);
  const pad = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
}

/** The offset of local time at a time: UTC+01:00, or UTC where there is none. */
export function zone(ms) {
  const offset = -new Date(ms).getTimezoneOffset();
  if (!offset) return "UTC";
  const pad = (value) => String(value).padStart(2, "0");
  return `UTC${offset < 0 ? "−" : "+"}${pad(Math.floor(Math.abs(offset) / 60))}:${pad(Math.abs(offset) % 60)}`;
}

/** Date, local time and UTC offset, for titles and pictures. */
export function fullTime(ms) {
  return `${day(ms)} ${clock(ms, 2)} ${zone(ms)}`;
}

/** Names without their common prefix and suffix, for narrow columns: mlx5_0:1, mlx5_1:1 become 0, 1. */
export function shorten(names) {
  if (names.length < 2) return names;
  const shared = (a, b) => {
    let count = 0;
    while (count < a.length && a[count] === b[count]) count += 1;
    return count;
  };
  const reversed = (text) => [...text].reverse().join("");
  const begin = Math.min(...names.map((name) => shared(name, names[0])));
  const end = Math.min(...names.map((name) => shared(reversed(name), reversed(names[0]))));
  const short = names.map((name) => name.slice(begin, name.length - end));
  return short.every((name) => name) ? short : names;
}

/** A time that goes on: 8 s, 4 min 18 s, 1 h 4 min, 3 d 2 h. */
export function elapsed(ms) {
  const seconds = Math.floor(ms / 1000);
  const units = [["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  if (seconds < 60) return `${seconds} s`;
  const [[large, size], [small, part]] = units.slice(first, first + 2);
  const rest = Math.floor((seconds % size) / part);
  return `${Math.floor(seconds / size)} ${large}${rest ? ` ${rest} ${small}` : ""}`;
}

/** Some names, the first three of many. */
export function namesWords(names) {
  const rest = names.length - 3;
  if (rest > 0) return `${names.slice(0, 3).join(", ")} and ${rest} more`;
  return names.length > 1 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)}` : names.join("");
}
