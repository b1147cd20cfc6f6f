// Rails compared with each other: the median of the rails with the same role and job, and differences from it.

import { jobsAt, stateAt } from "./states.js";

/** The rows of each group whose members should do the same: one role, one job, one direction. */
export function groupRows(rows, ms) {
  const groups = new Map();
  rows.forEach((row, index) => {
    const { role } = stateAt(row.port, ms);
    const jobs = jobsAt(row.port, ms).map((each) => `${each.scheduler}:${each.job_id}`);
    const key = JSON.stringify([row.way, role ?? "", ...jobs.sort()]);
    groups.set(key, [...(groups.get(key) ?? []), index]);
  });
  return [...groups.values()];
}

/** The median of the numbers among the values of some rows in a column; NaN without any. */
export function medianOf(values, members, columns, column, scratch) {
  let count = 0;
  for (const row of members) {
    const value = values[row * columns + column];
    if (value === value) scratch[count++] = value;
  }
  if (!count) return NaN;
  const sorted = scratch.subarray(0, count).sort();
  return count % 2 ? sorted[(count - 1) / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

/** The medians of groups over all columns: one array per group. */
export function medians({ values, columns }, groups) {
  return groups.map((members) => {
    const scratch = new Float32Array(members.length);
    return Float32Array.from({ length: columns }, (_, column) => medianOf(values, members, columns, column, scratch));
  });
}

/** The values minus the median of their group. */
export function differences(read, groups) {
  const { values, columns } = read;
  const found = new Float32Array(values.length).fill(NaN);
  medians(read, groups).forEach((median, index) => {
    for (const row of groups[index]) {
      for (let column = 0; column < columns; column += 1) {
        found[row * columns + column] = values[row * columns + column] - median[column];
      }
    }
  });
  return found;
}

/** Mean difference of each row from the median of its group, NaN without common samples. */
export function meanDifferences(read, groups) {
  const { columns } = read;
  const all = differences(read, groups);
  return Array.from({ length: all.length / columns }, (_, row) => {
    const own = all.subarray(row * columns, (row + 1) * columns).filter((value) => value === value);
    return own.length ? own.reduce((a, b) => a + b, 0) / own.length : NaN;
  });
}
