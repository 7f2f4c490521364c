import type {
  Budget,
  Detail,
  Explanation,
  KubeEvent,
  OverviewMessage,
  PodPlan,
  Preview,
  Row,
  Subset,
  Tile,
  WorkloadMessage,
} from './types';

export interface Overview {
  rows: Map<string, Row>;
  /** What was there before a reset and has not come again yet. */
  stale: Set<string>;
  synced: boolean;
  notes: string[];
}

export interface Workload {
  detail?: Detail;
  gone: boolean;
  pods: Map<string, Tile>;
  stale: Set<string>;
  podsSynced: boolean;
  /** The tiles' ids in order of name; made anew when pods come or go. */
  order: string[] | undefined;
  explanation?: Explanation;
  plans: Map<string, PodPlan>;
  preview?: Preview;
  events: KubeEvent[];
  budgets: Budget[];
  subsets: Subset[];
  subsetsFrom: string;
  notes: string[];
}

export const newOverview = (): Overview => ({ rows: new Map(), stale: new Set(), synced: false, notes: [] });

export const newWorkload = (): Workload => ({
  gone: false,
  pods: new Map(),
  stale: new Set(),
  podsSynced: false,
  order: undefined,
  plans: new Map(),
  events: [],
  budgets: [],
  subsets: [],
  subsetsFrom: '',
  notes: [],
});

function addNote(notes: string[], text: string): string[] {
  return !text || notes.includes(text) ? notes : [...notes, text];
}

function drop<T>(from: Map<string, T>, stale: Set<string>): boolean {
  for (const id of stale) from.delete(id);
  const any = stale.size > 0;
  stale.clear();
  return any;
}

export function reduceOverview(s: Overview, m: OverviewMessage): void {
  switch (m.type) {
    case 'reset':
      s.stale = new Set(s.rows.keys());
      s.notes = [];
      break;
    case 'workload':
      s.rows.set(m.workload.id, m.workload);
      s.stale.delete(m.workload.id);
      break;
    case 'gone':
      s.rows.delete(m.id);
      s.stale.delete(m.id);
      break;
    case 'synced':
      s.synced = true;
      drop(s.rows, s.stale);
      break;
    case 'note':
      s.notes = addNote(s.notes, m.text);
      break;
    case 'notes':
      s.notes = m.notes ?? [];
      break;
  }
}

export function reduceWorkload(s: Workload, m: WorkloadMessage): void {
  switch (m.type) {
    case 'reset':
      s.stale = new Set(s.pods.keys());
      s.notes = [];
      break;
    case 'workload':
      s.detail = m.workload;
      s.gone = false;
      break;
    case 'pods':
      for (const pod of m.pods ?? []) {
        if (!s.pods.has(pod.id)) s.order = undefined;
        s.pods.set(pod.id, pod);
        s.stale.delete(pod.id);
      }
      break;
    case 'podsSynced':
      s.podsSynced = true;
      if (drop(s.pods, s.stale)) s.order = undefined;
      break;
    case 'podsGone':
      for (const id of m.pods ?? []) {
        s.stale.delete(id);
        if (s.pods.delete(id)) s.order = undefined;
      }
      break;
    case 'explanation':
      s.explanation = m.explanation;
      s.plans = new Map((m.explanation.pods ?? []).map((p) => [`${p.namespace}/${p.name}`, p]));
      break;
    case 'waves':
      s.preview = m.preview;
      break;
    case 'events':
      s.events = m.events ?? [];
      break;
    case 'budgets':
      s.budgets = m.budgets ?? [];
      break;
    case 'subsets':
      s.subsets = m.subsets ?? [];
      s.subsetsFrom = m.source ?? '';
      break;
    case 'gone':
      s.gone = true;
      break;
    case 'note':
      s.notes = addNote(s.notes, m.text);
      break;
    case 'notes':
      s.notes = m.notes ?? [];
      break;
  }
}

const collator = new Intl.Collator('en', { numeric: true });

/** The pods in order of namespace and name, where web-2 comes before web-10. */
export function inOrder(s: Workload): Tile[] {
  s.order ??= [...s.pods.keys()].sort(collator.compare);
  const tiles: Tile[] = [];
  for (const id of s.order) {
    const tile = s.pods.get(id);
    if (tile) tiles.push(tile);
  }
  return tiles;
}

export type Schedule = (f: () => void) => void;

/** Holds a state that messages change, and tells its followers once for all messages between two frames. */
export class Store<S, M> {
  version = 0;
  private followers = new Set<() => void>();
  private told = true;

  constructor(
    readonly state: S,
    private reduce: (s: S, m: M) => void,
    private schedule: Schedule,
  ) {}

  push = (m: M): void => {
    this.reduce(this.state, m);
    this.version++;
    if (!this.told) return;
    this.told = false;
    this.schedule(() => {
      this.told = true;
      for (const f of this.followers) f();
    });
  };

  subscribe = (f: () => void): (() => void) => {
    this.followers.add(f);
    return () => this.followers.delete(f);
  };
}
