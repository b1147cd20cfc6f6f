// Scores of the site's search: pages for people first, generated reference last.
const GENERATED =
  /^(accuracy|benchmarks|cli|configuration|counters|doctor|kinds|metrics|model-inputs|overlap-rules|recorded-series|report-rows)$/;
const INTERNALS = /^(architecture|design|track-record)$/;
const FIRST = /^(faq|getting-started|live|report|overlap|alerts|gateway|runbooks\/IBPulse\w+)$/;

var Scorer = {
  score: ([docname, , , , score]) =>
    score + (GENERATED.test(docname) ? -20 : INTERNALS.test(docname) ? -10 : FIRST.test(docname) ? 5 : 0),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  // words inside others, such as hang in change
  partialTerm: 0,
};
