// Writes samples as a trace of Perfetto: a counter track of GB/s per series, at the beginning of each sample.
// The format is that of protos/perfetto/trace/perfetto_trace.proto.

const REALTIME = 1;
const BOOTTIME = 6;
const COUNTER = 4;
// numbers of variable length may be longer than necessary; 63 bits hold every time
const TIME_BYTES = 9;

function varint(value) {
  const found = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) found.push(Number(rest & 127n) | 128);
  return [...found, Number(rest)];
}

const number = (field, value) => [...varint(field << 3), ...varint(value)];
const part = (field, content) => [...varint((field << 3) | 2), ...varint(content.length), ...content];
const text = (field, words) => part(field, [...new TextEncoder().encode(words)]);
const packet = (body) => part(1, [...number(10, 1), ...body]);

/** The clock of all times, and the tracks: one per series, below one process. */
function describe(about, title, beginNs) {
  // readers that ignore the primary clock take times for those of BOOTTIME
  const clocks = [REALTIME, BOOTTIME].flatMap((clock) => part(1, [...number(1, clock), ...number(2, beginNs)]));
  const process = part(3, [...number(1, 1), ...text(6, title)]);
  const counter = part(8, [...text(6, "GB/s"), ...text(7, "samples")]);
  const tracks = about.series.map((name, row) => packet(part(60, [...number(1, row + 2), ...number(5, 1), ...text(2, name), ...counter])));
  return [...packet(part(6, [...clocks, ...number(2, REALTIME)])), ...packet(part(60, [...number(1, 1), ...process])), ...tracks.flat()];
}

/** The packets of one series, all of one length; of missing samples in a row the first one, and one behind the last. */
function writeSeries(uuid, stamps, values) {
  const event = [...number(9, COUNTER), ...number(11, uuid), ...varint((44 << 3) | 1), ...Array(8).fill(0)];
  const head = [...number(10, 1), ...varint(8 << 3)];
  const body = [...head, ...Array(TIME_BYTES).fill(0), ...number(58, REALTIME), ...part(11, event)];
  const one = part(1, body);
  const stampAt = one.length - body.length + head.length;
  const out = new Uint8Array(one.length * stamps.length);
  const view = new DataView(out.buffer);
  let count = 0;
  let ended = true;
  stamps.forEach((stamp, at) => {
    const value = at < values.length ? values[at] : NaN;
    const missing = value !== value;
    if (!(missing && ended)) {
      const begin = count * one.length;
      out.set(one, begin);
      out.set(stamp, begin + stampAt);
      view.setFloat64(begin + one.length - 8, value / 1e9, true);
      count += 1;
    }
    ended = missing;
  });
  return out.subarray(0, count * one.length);
}

function stampOf(ns) {
  return Array.from({ length: TIME_BYTES }, (_, at) => Number((ns >> BigInt(7 * at)) & 127n) | (at < TIME_BYTES - 1 ? 128 : 0));
}

/** The parts of a file of a window: `about` is its description, `values` its rates, NaN where they are missing. */
export function writePerfetto(about, values, title) {
  const { points, start_ms: start, resolution_ms: step, interval_ms: interval } = about;
  // a sample covers the interval before its time
  const timeOf = (at) => BigInt(start - interval + at * step) * 1_000_000n;
  const stamps = Array.from({ length: points + 1 }, (_, at) => stampOf(timeOf(at)));
  const series = about.series.map((_, row) => writeSeries(row + 2, stamps, values.subarray(row * points, (row + 1) * points)));
  return [Uint8Array.from(describe(about, title, timeOf(0))), ...series];
}
