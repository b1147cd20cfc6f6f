// Bundles the page into the folder `out`: node build.mjs, in a folder with the installed packages.
import { build } from "esbuild";
import { cpSync, mkdirSync, writeFileSync } from "node:fs";

/** Modules that no panel uses: whatever is imported from them is a function that does nothing. */
const stub = (filter) => ({
  name: "stub",
  setup(build) {
    build.onResolve({ filter }, (found) => ({ path: found.path, namespace: "stub" }));
    build.onLoad({ filter: /.*/, namespace: "stub" }, () => ({
      contents:
        "module.exports = new Proxy(function () {}, { get: (_, key) => (key === '__esModule' ? false : function () {}) });",
      loader: "js",
    }));
  },
});

const data = Object.fromEntries([".woff", ".woff2", ".svg", ".png", ".ttf"].map((ending) => [ending, "dataurl"]));
mkdirSync("out/public/fonts/inter", { recursive: true });
await build({
  entryPoints: ["page.tsx"],
  bundle: true,
  outfile: "out/page.js",
  format: "iife",
  platform: "browser",
  target: "chrome120",
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"', "process.env": "{}", global: "window" },
  loader: data,
  plugins: [stub(/^(monaco-editor|@monaco-editor\/react|ol|@opentelemetry|@grafana\/faro)(\/|$)/)],
  logLevel: "warning",
});
cpSync("node_modules/@grafana/ui/dist/public", "out/public/build", { recursive: true });
const inter = "node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2";
for (const name of ["Regular", "Medium"]) cpSync(inter, `out/public/fonts/inter/Inter-${name}.woff2`);
writeFileSync(
  "out/index.html",
  '<!doctype html><meta charset="utf-8"><title>board</title>' +
    '<link rel="stylesheet" href="page.css"><link rel="icon" href="data:,">' +
    '<script>window.__grafana_public_path__="/public/";</script><body><div id="root"></div><script src="page.js"></script>',
);
