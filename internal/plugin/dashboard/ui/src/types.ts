// What the server sends. Fields that may be absent are optional; lists may also come as null from Go.

export type RowState = 'done' | 'rolling' | 'waiting' | 'paused' | 'failed' | 'deleting' | 'unknown';
export type TileState = 'old' | 'updating' | 'notReady' | 'new' | 'held' | 'deleting';
export type List<T> = T[] | null | undefined;

export interface Kind {
  kind: string;
  resource: string;
  namespaced: boolean;
}

export interface Session {
  user: string;
  context: string;
  server: string;
  namespace: string;
  version: string;
  namespaces?: List<string>;
  kinds?: List<Kind>;
}

export interface Row {
  id: string;
  kind: string;
  resource: string;
  namespace: string;
  name: string;
  created?: string;
  images?: List<string>;
  desired?: number;
  updated?: number;
  target?: number;
  ready?: number;
  state: RowState;
  line?: string;
  waiting?: string;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  since?: string;
}

export interface May {
  change?: boolean;
  pause?: boolean;
  undo?: boolean;
  restart?: boolean;
  scale?: boolean;
}

export interface Container {
  name: string;
  image: string;
}

export interface Detail extends Row {
  generation?: number;
  uid?: string;
  paused?: boolean;
  updateRevision?: string;
  currentRevision?: string;
  conditions?: List<Condition>;
  may?: May;
  mayNot?: string;
  containers?: List<Container>;
  replicas?: number;
}

export interface Tile {
  id: string;
  name: string;
  namespace: string;
  revision?: string;
  new?: boolean;
  state: TileState;
  ready?: string;
  restarts?: number;
  node?: string;
  phase?: string;
  lifecycle?: string;
  subset?: string;
  images?: List<string>;
  since?: string;
  reason?: string;
  message?: string;
  until?: string;
}

export interface PodPlan {
  namespace: string;
  name: string;
  state: 'done' | 'next' | 'waiting';
  action?: string;
  reason?: string;
  message?: string;
  revision?: string;
  restarts?: List<string>;
  until?: string;
}

export interface Explanation {
  kind: string;
  namespace: string;
  name: string;
  updateRevision?: string;
  summary?: List<string>;
  waiting?: string;
  problems?: List<string>;
  warnings?: List<string>;
  create?: number;
  notes?: List<string>;
  pods?: List<PodPlan>;
}

export interface Step {
  pod: string;
  action: string;
  reason?: string;
  message?: string;
  restarts?: List<string>;
}

export interface Wave {
  afterSeconds?: number;
  hooks?: List<string>;
  steps?: List<Step>;
}

export interface Preview {
  kind?: string;
  namespace?: string;
  name?: string;
  new?: boolean;
  unchanged?: boolean;
  updateRevision?: string;
  waves?: List<Wave>;
  takesSeconds?: number;
  left?: List<PodPlan>;
  held?: string;
  warnings?: Record<string, string> | null;
  notes?: List<string>;
  headline?: string;
}

export interface KubeEvent {
  time: string;
  type: string;
  reason: string;
  message: string;
  count?: number;
  about?: string;
}

export interface Budget {
  name: string;
  kind: string;
  total?: number;
  desired?: number;
  available?: number;
  allowed?: number;
  unavailable?: List<{ pod: string; why: string }>;
  message?: string;
}

export interface Subset {
  name: string;
  wanted?: number;
  present?: number;
  message?: string;
}

export interface Revision {
  number: number;
  name: string;
  created?: string;
  cause?: string;
  update?: boolean;
  current?: boolean;
  template: string;
}

export type Change =
  | { action: 'pause' }
  | { action: 'resume' }
  | { action: 'restart'; inPlace: boolean }
  | { action: 'undo'; toRevision: number }
  | { action: 'images'; images: Record<string, string> }
  | { action: 'scale'; replicas: number }
  | { action: 'yaml'; yaml: string };

export interface Target {
  resource: string;
  namespace: string;
  name: string;
}

export interface Plan {
  before: string;
  after: string;
  generation: number;
  /** The revision that an undo goes back to. */
  toRevision?: number;
  previews?: List<Preview>;
  note?: string;
}

export type OverviewMessage =
  | { type: 'reset' | 'synced' | 'ping' }
  | { type: 'workload'; workload: Row }
  | { type: 'gone'; id: string }
  | { type: 'note'; text: string }
  | { type: 'notes'; notes: List<string> };

export type WorkloadMessage =
  | { type: 'reset' | 'podsSynced' | 'ping' | 'gone' }
  | { type: 'workload'; workload: Detail }
  | { type: 'pods'; pods: List<Tile> }
  | { type: 'podsGone'; pods: List<string> }
  | { type: 'explanation'; explanation: Explanation }
  | { type: 'waves'; preview: Preview }
  | { type: 'events'; events: List<KubeEvent> }
  | { type: 'budgets'; budgets: List<Budget> }
  | { type: 'subsets'; source?: string; subsets: List<Subset> }
  | { type: 'note'; text: string }
  | { type: 'notes'; notes: List<string> };
