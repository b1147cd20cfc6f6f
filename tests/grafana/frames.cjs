// Does with data frames what Grafana does, by Grafana's own library, and says what came out.
// Usage: node frames.cjs FOLDER < job, where FOLDER/node_modules holds @grafana/data, and the job is JSON:
// {frames: [...], transformations: [...], units: [...], colors: [...], shown: [{config, values}]}, all but the frames optional.
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");
const path = require("node:path");

// what a browser has: the library asks for its language
globalThis.navigator ??= { language: "en-GB", languages: ["en-GB"] };

const load = createRequire(path.join(path.resolve(process.argv[2]), "here.cjs"));
const grafana = load("@grafana/data");
// and, once it is loaded, whether the page is one of its newer ones
globalThis.window = globalThis;

function describe(field, frame) {
  const values = field.values;
  return {
    name: grafana.getFieldDisplayName(field, frame),
    type: field.type,
    unit: field.config.unit,
    length: values.length,
    nulls: values.flatMap((value, i) => (value === null || value === undefined ? [i] : [])),
    sum: values.reduce((total, value) => total + (Number.isFinite(value) ? value : 0), 0),
    others: values.filter((value) => typeof value === "number" && !Number.isFinite(value)).length,
    some: values.slice(0, 20),
  };
}

function summarize(frame) {
  const time = frame.fields.find((field) => field.type === "time");
  const steps = new Set();
  for (let i = 1; time && i < time.values.length; i++) steps.add(time.values[i] - time.values[i - 1]);
  return {
    length: frame.length,
    kind: frame.meta?.type,
    custom: frame.meta?.custom,
    first: time?.values[0],
    steps: [...steps],
    rows: frame.fields.filter((field) => field !== time).map((field) => describe(field, frame)),
  };
}

// what a panel writes for values of a field, and in which colour; JSON has no infinity
function show({ config, values }) {
  const field = { name: "Value", type: "number", config, values: [] };
  const display = grafana.getDisplayProcessor({ field, theme: grafana.createTheme() });
  return values.map((value) => {
    const shown = display(value === "Infinity" ? Infinity : value);
    return { text: grafana.formattedValueToString(shown), color: shown.color };
  });
}

async function main() {
  const job = JSON.parse(readFileSync(0, "utf8"));
  // one of them stands there under two names
  const transformers = new Map(Object.values(grafana.standardTransformers).map((each) => [each.id, each]));
  grafana.standardTransformersRegistry.setInit(() =>
    [...transformers.values()].map((each) => ({ id: each.id, name: each.name, transformation: () => Promise.resolve(each) })),
  );
  let frames = job.frames.map((frame) => grafana.toDataFrame(frame));
  for (const step of job.transformations ?? []) {
    frames = await new Promise((resolve, reject) =>
      grafana.transformDataFrame([step], frames).subscribe({ next: resolve, error: reject }),
    );
  }
  const known = new Set(grafana.getValueFormats().flatMap((group) => group.submenu.map((unit) => unit.value)));
  const modes = new Set(grafana.fieldColorModeRegistry.list().map((mode) => mode.id));
  const answer = {
    frames: frames.map(summarize),
    unknownUnits: (job.units ?? []).filter((unit) => !known.has(unit)),
    unknownColors: (job.colors ?? []).filter((mode) => !modes.has(mode)),
    shown: (job.shown ?? []).map(show),
  };
  process.stdout.write(JSON.stringify(answer));
}

main();
