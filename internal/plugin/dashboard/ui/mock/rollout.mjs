// Made-up rollouts, for looking at the page without a cluster.
const NS = ['default', 'shop', 'payments', 'search', 'batch'];
const KINDS = [
  ['CloneSet', 'clonesets.apps.kruise.io'],
  ['Advanced StatefulSet', 'statefulsets.apps.kruise.io'],
  ['Advanced DaemonSet', 'daemonsets.apps.kruise.io'],
  ['UnitedDeployment', 'uniteddeployments.apps.kruise.io'],
];
const STATES = ['done', 'done', 'done', 'done', 'rolling', 'waiting', 'paused', 'failed'];

let seed = 7;
export const random = () => ((seed = (seed * 1103515245 + 12345) % 2147483648) / 2147483648);
const iso = (ms) => new Date(ms).toISOString();
const suffix = (n) => (n * 7919 + 100003).toString(36).slice(-5).padStart(5, 'x');

export const session = {
  user: 'jane', context: 'kind-dev', server: 'https://127.0.0.1:6443', namespace: 'shop', version: 'v1.0.0', namespaces: NS,
  kinds: [...KINDS.map(([kind, resource]) => ({ kind, resource, namespaced: true })), { kind: 'SidecarSet', resource: 'sidecarsets.apps.kruise.io', namespaced: false }],
};

export class World {
  constructor({ pods = 60, rows = 40, subsets = true, speed = 1 }) {
    this.speed = speed;
    this.subsets = subsets ? ['zone-a', 'zone-b', 'zone-c'] : [];
    this.paused = false;
    this.generation = 3;
    this.image = 'registry.example.com/shop/nginx:1.29';
    this.replicas = pods;
    this.pods = [];
    for (let i = 0; i < pods; i++) this.pods.push(this.pod(i));
    this.events = [];
    this.rows = [];
    for (let i = 0; i < rows; i++) this.rows.push(this.row(i));
    if (rows) {
      const sidecars = { ...this.row(0), id: 'sidecarsets.apps.kruise.io//mesh', kind: 'SidecarSet', resource: 'sidecarsets.apps.kruise.io', namespace: '', name: 'mesh' };
      this.rows[rows - 1] = sidecars;
    }
    for (let i = 0; i < 6; i++) this.event(i % 3 ? 'Normal' : 'Warning', i % 3 ? 'Updating' : 'MaxUnavailable', `Event ${i} of the rollout`, `Pod/web-${suffix(i)}`);
  }

  pod(i) {
    const name = `web-${suffix(i)}`;
    return {
      id: `shop/${name}`, name, namespace: 'shop', revision: '77c', new: false, state: 'old', ready: '2/2', restarts: i % 17 ? 0 : 3,
      node: `node-${(i % Math.max(3, Math.ceil(this.replicas / 40))) + 1}`, phase: 'Running', images: ['registry.example.com/shop/nginx:1.28', 'envoy:1.30'],
      since: iso(Date.now() - 3600e3), ...(this.subsets.length ? { subset: this.subsets[i % this.subsets.length] } : {}),
    };
  }

  row(i) {
    const [kind, resource] = KINDS[i % KINDS.length];
    const namespace = NS[i % NS.length];
    const name = `${['cart', 'api', 'ledger', 'index', 'worker', 'mail'][i % 6]}-${i}`;
    const state = STATES[(i * 5) % STATES.length];
    const desired = 3 + (i % 40);
    const updated = state === 'done' ? desired : Math.floor(desired * 0.4);
    return {
      id: `${resource}/${namespace}/${name}`, kind, resource, namespace, name, created: iso(Date.now() - 1e7), images: [`app:1.${i % 9}`], desired, updated,
      target: desired, ready: state === 'failed' ? desired - 2 : desired, state,
      ...(state === 'waiting' ? { waiting: `MaxUnavailable: ${desired - updated} pods: 1 pod is unavailable, and 1 may be` } : {}),
      ...(state === 'failed' ? { line: 'The new pods do not become ready: ImagePullBackOff' } : {}),
    };
  }

  event(type, reason, message, about) {
    this.events.unshift({ time: iso(Date.now()), type, reason, message, count: 1, about });
    this.events.length = Math.min(this.events.length, 200);
  }

  count(f) {
    return this.pods.filter(f).length;
  }

  detail() {
    const updated = this.count((p) => p.new);
    const held = this.pods.find((p) => p.state === 'held');
    const state = this.paused ? 'paused' : updated === this.pods.length ? 'done' : held ? 'waiting' : 'rolling';
    return {
      id: 'clonesets.apps.kruise.io/shop/web', kind: 'CloneSet', resource: 'clonesets.apps.kruise.io', namespace: 'shop', name: 'web', created: iso(Date.now() - 9e7),
      images: [this.image, 'envoy:1.30'], desired: this.pods.length, updated, target: this.pods.length, ready: this.count((p) => p.ready === '2/2'), state,
      line: `Waiting for cloneset "web" rollout to finish: ${updated} out of ${this.pods.length} new pods have been updated...`,
      ...(held && !this.paused ? { waiting: `MaxUnavailable: ${this.count((p) => p.state === 'held')} pods: the budget allows no more` } : {}),
      generation: this.generation, uid: 'u-1', paused: this.paused, updateRevision: 'web-5d8f', currentRevision: 'web-77c',
      conditions: [{ type: 'Progressing', status: 'True', reason: 'Updating', message: 'Pods are being updated.', since: iso(Date.now() - 65e3) }],
      may: { change: true, pause: true, undo: true, restart: true, scale: true },
      containers: [{ name: 'app', image: this.image }, { name: 'envoy', image: 'envoy:1.30' }], replicas: this.pods.length,
    };
  }

  /** Moves the rollout on and returns the pods that changed. */
  step() {
    if (this.paused) return [];
    const changed = new Set();
    const set = (p, values) => (Object.assign(p, values, { since: iso(Date.now()) }), changed.add(p));
    const atOnce = Math.max(2, Math.ceil(this.pods.length / 60));
    const busy = this.pods.filter((p) => p.state === 'updating' || p.state === 'notReady');
    for (const p of busy) {
      if (random() > 0.25 * this.speed) continue;
      if (p.state === 'updating') set(p, { state: 'notReady', new: true, revision: '5d8f', ready: '1/2', lifecycle: undefined, images: [this.image, 'envoy:1.30'] });
      else set(p, { state: 'new', ready: '2/2' });
    }
    let room = atOnce - this.count((p) => p.state === 'updating' || p.state === 'notReady');
    let held = this.count((p) => p.state === 'held');
    for (const p of this.pods) {
      if (p.new || p.state === 'updating') continue;
      if (room > 0) {
        room--;
        if (p.state === 'held') held--;
        set(p, { state: 'updating', lifecycle: 'Updating', reason: undefined, message: undefined, until: undefined, ready: '1/2' });
        this.event('Normal', 'SuccessfulUpdatePodInPlace', `The containers app of pod ${p.name} are restarted`, `Pod/${p.name}`);
      } else if (held < atOnce) {
        if (p.state === 'held') continue;
        held++;
        set(p, { state: 'held', reason: 'MaxUnavailable', message: `${atOnce} pods are unavailable, and ${atOnce} may be`, until: iso(Date.now() + 45e3) });
      } else break;
    }
    if (random() < 0.05) this.event('Warning', 'Unhealthy', 'Readiness probe failed: connection refused', `Pod/${this.pods[0]?.name}`);
    if (!changed.size && this.pods.every((p) => p.state === 'new')) this.again();
    return [...changed];
  }

  again() {
    for (const p of this.pods) Object.assign(p, { state: 'old', new: false, revision: '77c' });
  }

  explanation() {
    const d = this.detail();
    return {
      kind: 'CloneSet', namespace: 'shop', name: 'web', updateRevision: 'web-5d8f', summary: [`${d.updated} of ${d.target} pods have the new revision.`],
      ...(d.waiting ? { waiting: d.waiting } : {}), problems: [], warnings: [], create: 0, notes: ['You may not list nodes: their state is not known.'],
      pods: this.pods.filter((p) => p.state !== 'new').slice(0, 2000).map((p) => ({
        namespace: 'shop', name: p.name, state: p.state === 'held' ? 'waiting' : 'next', action: 'update in place', reason: p.reason ?? '', message: p.message ?? '', restarts: ['app'], until: p.until,
      })),
    };
  }

  preview(change) {
    const open = change ? this.pods : this.pods.filter((p) => !p.new);
    if (change?.action === 'pause') return { waves: [], held: 'The rollout is paused, and goes on when it is resumed.', headline: `${open.length} pods stay as they are`, left: [] };
    const size = Math.max(2, Math.ceil(this.pods.length / 12));
    const action = change?.action === 'restart' && !change.inPlace ? 'recreate' : 'update in place';
    const waves = [];
    for (let i = 0; i < open.length; i += size) {
      waves.push({
        afterSeconds: waves.length * 35, hooks: [],
        steps: open.slice(i, i + size).map((p, n) => ({ pod: p.name, action: n % 9 === 8 ? 'recreate' : action, reason: n % 9 === 8 ? 'NotInPlace' : '', message: n % 9 === 8 ? 'the volumes differ' : '', restarts: ['app'] })),
      });
    }
    const held = !change && this.pods.length > 100 ? 'The budget web allows no more than two pods at once, and pod web-x is not ready.' : undefined;
    return {
      kind: 'CloneSet', namespace: 'shop', name: 'web', waves, takesSeconds: waves.length * 35, left: [], ...(held ? { held } : {}), warnings: {}, notes: [],
      headline: `${open.length} pods ${action === 'recreate' ? 'made anew' : 'updated in place'}, in ${waves.length} waves, ${waves.length * 35}s at least`,
    };
  }

  budgets() {
    const out = this.pods.filter((p) => p.state === 'updating' || p.state === 'notReady');
    const total = this.pods.length;
    const desired = Math.floor(total * 0.95);
    return [{
      name: 'web', kind: 'PodUnavailableBudget', total, desired, available: total - out.length, allowed: Math.max(0, total - out.length - desired),
      unavailable: out.map((p) => ({ pod: p.name, why: p.state === 'updating' ? 'being updated' : 'not ready' })),
    }];
  }

  subsetList() {
    return this.subsets.map((name) => {
      const present = this.count((p) => p.subset === name);
      return { name, wanted: present, present, ...(name === 'zone-c' ? { message: 'This zone has little room.' } : {}) };
    });
  }

  yaml(change) {
    let image = this.image;
    let replicas = this.replicas;
    let extra = '';
    if (change?.action === 'images') image = Object.values(change.images)[0];
    if (change?.action === 'scale') replicas = change.replicas;
    if (change?.action === 'restart') extra = '      annotations:\n        afloat.io/restartedAt: "2026-11-27T10:00:00Z"\n';
    if (change?.action === 'undo') image = 'registry.example.com/shop/nginx:1.28';
    if (change?.action === 'yaml') return change.yaml;
    const paused = change?.action === 'pause' || (this.paused && change?.action !== 'resume');
    return `apiVersion: apps.kruise.io/v1alpha1\nkind: CloneSet\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  replicas: ${replicas}\n  selector:\n    matchLabels:\n      app: web\n  template:\n    metadata:\n      labels:\n        app: web\n${extra}    spec:\n      containers:\n      - name: app\n        image: ${image}\n      - name: envoy\n        image: envoy:1.30\n  updateStrategy:\n    maxUnavailable: 1\n    paused: ${paused}\n    type: InPlaceIfPossible\n`;
  }

  revisions() {
    const template = (tag) => `metadata:\n  labels:\n    app: web\nspec:\n  containers:\n  - name: app\n    image: registry.example.com/shop/nginx:${tag}\n    ports:\n    - containerPort: 80\n  - name: envoy\n    image: envoy:1.30\n`;
    return [3, 2, 1].map((number) => ({
      number, name: ['web-5d8f', 'web-77c', 'web-6f1'][3 - number], created: iso(Date.now() - (4 - number) * 86400e3), cause: number === 2 ? 'CVE in 1.27' : '<none>',
      update: number === 3, current: number === 2, template: template(`1.${26 + number}`),
    }));
  }
}
