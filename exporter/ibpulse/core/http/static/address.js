// The addresses of the page, relative to it, so that it works under any path prefix.

const given = document.documentElement.dataset;

/** What the page shows: the name of a node or a job, or the host that serves the page. */
export const NAME = given.name || location.host;

/** The same without the port of the host, for titles and the names of files. */
export const SHORT_NAME = given.name || location.hostname;

/** Whether a gateway serves this page of a node or a job, and so has the pages of the others. */
export const BELOW_GATEWAY = Boolean(given.root);

/** The URL of a path below `/api/v1/`: of what the page shows, or of a node of a gateway. */
export function apiAddress(path, node = "") {
  return node ? `${nodeAddress(node)}api/v1/${path}` : `${given.api ?? "api/v1/"}${path}`;
}

/** The URL of a node's page of a gateway. */
export function nodeAddress(node) {
  return `${given.root ?? ""}node/${encodeURIComponent(node)}/`;
}

/** The URL of a job's page of a gateway. */
export function jobAddress(id) {
  return `${given.root ?? ""}job/${encodeURIComponent(id)}`;
}
