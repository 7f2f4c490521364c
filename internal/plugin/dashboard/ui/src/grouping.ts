import type { PodPlan, Step, Subset, Tile } from './types';
import { TILE_STATES, TILE_WORDS, reasonText } from './format';

export type By = 'nothing' | 'revision' | 'subset' | 'node' | 'state';

export interface Group {
  key: string;
  title: string;
  tiles: Tile[];
}

const collator = new Intl.Collator('en', { numeric: true });

/** Puts pods into groups; the pods keep their order within each. */
export function groupTiles(tiles: Tile[], by: By, subsets: Subset[] = []): Group[] {
  if (by === 'nothing') return tiles.length ? [{ key: '', title: '', tiles }] : [];
  const groups = new Map<string, Group>();
  const group = (key: string, title: string) => {
    let g = groups.get(key);
    if (!g) groups.set(key, (g = { key, title, tiles: [] }));
    return g;
  };
  // Subsets stand in their own order, and are shown without pods too.
  if (by === 'subset') for (const s of subsets) group(s.name, s.name);
  if (by === 'state') for (const s of TILE_STATES) group(s, TILE_WORDS[s]);
  const fresh = new Set<string>();
  for (const t of tiles) {
    switch (by) {
      case 'state':
        group(t.state, TILE_WORDS[t.state] ?? t.state).tiles.push(t);
        break;
      case 'subset':
        group(t.subset ?? '', t.subset || 'In no subset').tiles.push(t);
        break;
      case 'node':
        group(t.node ?? '', t.node || 'On no node yet').tiles.push(t);
        break;
      case 'revision':
        if (t.new) fresh.add(t.revision ?? '');
        group(t.revision ?? '', t.revision || 'Unknown revision').tiles.push(t);
        break;
    }
  }
  let list = [...groups.values()];
  if (by === 'state') list = list.filter((g) => g.tiles.length);
  if (by === 'node') list.sort((a, b) => collator.compare(a.key, b.key));
  if (by === 'revision') {
    for (const g of list) if (fresh.has(g.key)) g.title += ' (new)';
    list.sort((a, b) => Number(fresh.has(a.key)) - Number(fresh.has(b.key)) || collator.compare(a.key, b.key));
  }
  return list;
}

export function countTiles(tiles: Iterable<Tile>): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const t of tiles) counts[t.state] = (counts[t.state] ?? 0) + 1;
  return counts;
}

export interface StepGroup {
  action: string;
  steps: Step[];
  restarts: string[];
  reasons: { text: string; count: number }[];
}

function reasonsOf(items: { reason?: string; message?: string }[]): { text: string; count: number }[] {
  const counts = new Map<string, number>();
  for (const { reason, message } of items) {
    const text = reasonText(reason, message);
    if (text) counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return [...counts].map(([text, count]) => ({ text, count })).sort((a, b) => b.count - a.count);
}

/** The steps of a wave by what is done. */
export function groupSteps(steps: Step[]): StepGroup[] {
  const groups = new Map<string, Step[]>();
  for (const step of steps) {
    const list = groups.get(step.action);
    if (list) list.push(step);
    else groups.set(step.action, [step]);
  }
  return [...groups].map(([action, list]) => ({
    action,
    steps: list,
    restarts: [...new Set(list.flatMap((s) => s.restarts ?? []))],
    reasons: reasonsOf(list),
  }));
}

/** The pods that are left by why they are. */
export function groupLeft(pods: PodPlan[]): { text: string; pods: PodPlan[] }[] {
  const groups = new Map<string, PodPlan[]>();
  for (const pod of pods) {
    const text = reasonText(pod.reason, pod.message) || pod.action || pod.state;
    const list = groups.get(text);
    if (list) list.push(pod);
    else groups.set(text, [pod]);
  }
  return [...groups].map(([text, list]) => ({ text, pods: list })).sort((a, b) => b.pods.length - a.pods.length);
}
