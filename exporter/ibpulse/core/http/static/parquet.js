// Writes samples as an Apache Parquet file: a column of times and one of rates per series, uncompressed.
// The format is that of parquet-format 2 (metadata in Thrift's compact protocol, plain encoding).

const MAGIC = [80, 65, 82, 49]; // PAR1
const TYPES = { INT64: 2, FLOAT: 4 };
const PLAIN = 0;
const RLE = 3;
// types of fields in Thrift's compact protocol
const [TRUE, I32, I64, BINARY, LIST, STRUCT] = [1, 5, 6, 8, 9, 12];

/** Bytes that grow. */
class Bytes {
  #parts = [];
  length = 0;

  add(bytes) {
    const made = bytes instanceof Uint8Array ? bytes : Uint8Array.from(bytes);
    this.#parts.push(made);
    this.length += made.length;
  }

  /** An unsigned number of variable length. */
  varint(value) {
    const found = [];
    let rest = BigInt(value);
    for (; rest > 127n; rest >>= 7n) found.push(Number(rest & 127n) | 128);
    this.add([...found, Number(rest)]);
  }

  /** A signed number of variable length. */
  zigzag(value) {
    this.varint(BigInt(value) >= 0 ? BigInt(value) * 2n : BigInt(value) * -2n - 1n);
  }

  whole() {
    const found = new Uint8Array(this.length);
    let at = 0;
    for (const part of this.#parts) {
      found.set(part, at);
      at += part.length;
    }
    return found;
  }
}

const text = (words) => new TextEncoder().encode(words);

/** Write fields of a struct, [number, type, value] each; numbers increase. A struct is a list of fields. */
function writeStruct(out, fields) {
  let last = 0;
  for (const [number, type, value] of fields) {
    out.add([((number - last) << 4) | type]);
    last = number;
    writeValue(out, type, value);
  }
  out.add([0]);
}

function writeValue(out, type, value) {
  // its type is all that is written of it
  if (type === TRUE) return;
  if (type === I32 || type === I64) out.zigzag(value);
  else if (type === BINARY) {
    out.varint(text(value).length);
    out.add(text(value));
  } else if (type === STRUCT) writeStruct(out, value);
  else {
    const [of, items] = value;
    if (items.length < 15) out.add([(items.length << 4) | of]);
    else {
      out.add([0xf0 | of]);
      out.varint(items.length);
    }
    for (const item of items) writeValue(out, of, item);
  }
}

/** The definition levels of values: 1 for each that is there, in runs. */
function levels(values) {
  const out = new Bytes();
  for (let from = 0; from < values.length; ) {
    const there = values[from] === values[from];
    let to = from + 1;
    while (to < values.length && (values[to] === values[to]) === there) to += 1;
    out.varint((to - from) << 1);
    out.add([there ? 1 : 0]);
    from = to;
  }
  const head = new Uint8Array(new Uint32Array([out.length]).buffer);
  return [head, out.whole()];
}

/** The one page of a column: header and data. */
function writePage(out, column) {
  const data = new Bytes();
  if (column.optional) for (const part of levels(column.values)) data.add(part);
  const present = column.optional ? column.values.filter((value) => value === value) : column.values;
  data.add(new Uint8Array(present.buffer, present.byteOffset, present.byteLength));
  const head = [[1, I32, column.values.length], [2, I32, PLAIN], [3, I32, RLE], [4, I32, RLE]];
  const page = [[1, I32, 0], [2, I32, data.length], [3, I32, data.length], [5, STRUCT, head]];
  writeStruct(out, page);
  out.add(data.whole());
}

/** The entry of a column in the schema. */
function schemaOf({ name, type, optional, timestamp }) {
  // a timestamp in UTC, in milliseconds
  const utc = [[1, TRUE], [2, STRUCT, [[1, STRUCT, []]]]];
  const logical = timestamp ? [[6, I32, 9], [10, STRUCT, [[8, STRUCT, utc]]]] : [];
  return [[1, I32, TYPES[type]], [3, I32, optional ? 1 : 0], [4, BINARY, name], ...logical];
}

/** The file of a window: `about` is its description, `values` its rates, NaN where they are missing. */
export function writeParquet(about, values) {
  const { points, start_ms: start, resolution_ms: step } = about;
  // those of a job have no other
  const { unit = "bytes_per_second", statistic = "mean" } = about;
  const times = BigInt64Array.from({ length: points }, (_, at) => BigInt(start + at * step));
  const columns = [{ name: "time_ms", type: "INT64", values: times, timestamp: true }];
  about.series.forEach((name, row) => {
    columns.push({ name: `${name} ${unit}`, type: "FLOAT", optional: true, values: values.slice(row * points, (row + 1) * points) });
  });
  const out = new Bytes();
  out.add(MAGIC);
  const chunks = columns.map((column) => {
    const begin = out.length;
    writePage(out, column);
    const size = out.length - begin;
    const about = [[1, I32, TYPES[column.type]], [2, LIST, [I32, [PLAIN, RLE]]], [3, LIST, [BINARY, [column.name]]], [4, I32, 0]];
    return { size, begin, meta: [...about, [5, I64, points], [6, I64, size], [7, I64, size], [9, I64, begin]] };
  });
  const total = chunks.reduce((sum, each) => sum + each.size, 0);
  const group = [[1, LIST, [STRUCT, chunks.map(({ begin, meta }) => [[2, I64, begin], [3, STRUCT, meta]])]], [2, I64, total], [3, I64, points]];
  const root = [[4, BINARY, "schema"], [5, I32, columns.length]];
  const facts = { interval_ms: about.interval_ms, resolution_ms: step, statistic, unit };
  const pairs = Object.entries(facts).map(([key, value]) => [[1, BINARY, `ibpulse.${key}`], [2, BINARY, String(value)]]);
  const footer = new Bytes();
  writeStruct(footer, [
    [1, I32, 1],
    [2, LIST, [STRUCT, [root, ...columns.map(schemaOf)]]],
    [3, I64, points],
    [4, LIST, [STRUCT, [group]]],
    [5, LIST, [STRUCT, pairs]],
    [6, BINARY, "ibpulse"],
  ]);
  out.add(footer.whole());
  out.add(new Uint8Array(new Uint32Array([footer.length]).buffer));
  out.add(MAGIC);
  return out.whole();
}
