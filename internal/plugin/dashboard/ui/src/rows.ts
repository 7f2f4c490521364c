import type { Row } from './types';
import { ROW_STATES } from './format';

export interface Filter {
  namespace: string;
  kind: string;
  state: string;
  text: string;
}

export function filterOf(query: URLSearchParams): Filter {
  const value = (key: string) => query.get(key)?.trim() ?? '';
  return { namespace: value('namespace'), kind: value('kind'), state: value('state'), text: query.get('q') ?? '' };
}

const RANK = new Map(ROW_STATES.map((state, i) => [state as string, i]));
const rank = (r: Row) => RANK.get(r.state) ?? ROW_STATES.length;
const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);

/** Whether each word of the text is in the row's name, namespace, kind, images or reason. */
function matches(r: Row, words: string[]): boolean {
  if (!words.length) return true;
  const all = [r.name, r.namespace, r.kind, r.waiting ?? '', ...(r.images ?? [])].join(' ').toLowerCase();
  return words.every((word) => all.includes(word));
}

/** The rows that the filter leaves: what needs a person's eyes first, then by namespace and name. */
export function chosenRows(rows: Iterable<Row>, f: Filter): Row[] {
  const words = f.text.toLowerCase().split(/\s+/).filter(Boolean);
  const found: Row[] = [];
  for (const r of rows) {
    if (f.namespace && r.namespace !== f.namespace) continue;
    if (f.kind && r.kind !== f.kind) continue;
    if (f.state && r.state !== f.state) continue;
    if (matches(r, words)) found.push(r);
  }
  return found.sort(
    (a, b) => rank(a) - rank(b) || compare(a.namespace, b.namespace) || compare(a.name, b.name) || compare(a.kind, b.kind),
  );
}

export function countStates(rows: Iterable<Row>): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const r of rows) counts[r.state] = (counts[r.state] ?? 0) + 1;
  return counts;
}

/** Which of `count` rows of one height are seen, with some more on both sides. */
export function seenRows(top: number, view: number, height: number, count: number, more = 6): { from: number; to: number } {
  const from = Math.max(0, Math.floor(top / height) - more);
  const to = Math.min(count, Math.ceil((top + view) / height) + more);
  return { from: Math.min(from, count), to: Math.max(to, 0) };
}
