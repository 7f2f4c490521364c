import { describe, mock, test } from 'node:test';
import assert from 'node:assert/strict';
import { load } from './load.mjs';

const { Lines, pause, follow } = await load('stream.ts');
const { Store, newOverview, newWorkload, reduceOverview, reduceWorkload, inOrder } = await load('store.ts');
const { chosenRows, countStates, filterOf, seenRows } = await load('rows.ts');
const { groupTiles, countTiles, groupSteps, groupLeft } = await load('grouping.ts');
const { layOut, seenTiles, placeOf, move, find } = await load('layout.ts');
const { length, ago, left, tileLabel, share, shortName, shortImage, announcement } = await load('format.ts');
const { diffLines } = await load('diff.tsx');
const { planned, refusal } = await load('plan.tsx');

const tile = (name, more = {}) => ({ id: `shop/${name}`, name, namespace: 'shop', state: 'old', ...more });
const row = (name, state, more = {}) => ({ id: name, kind: 'CloneSet', resource: 'r', namespace: 'shop', name, state, ...more });

describe('stream', () => {
  test('lines that come in pieces are put together', () => {
    const lines = new Lines();
    assert.deepEqual(lines.push('{"a":1}\n{"b"'), [{ a: 1 }]);
    assert.deepEqual(lines.push(':2}'), []);
    assert.deepEqual(lines.push('\n\n{"c":3}\n'), [{ b: 2 }, { c: 3 }]);
  });
  test('a line that is no JSON is skipped', () => {
    assert.deepEqual(new Lines().push('oops\n{"a":1}\n'), [{ a: 1 }]);
  });
  test('the pause grows from 1 s to 15 s', () => {
    assert.deepEqual([0, 1, 2, 3, 4, 9].map(pause), [1000, 2000, 4000, 8000, 15000, 15000]);
  });
});

describe('following a stream', () => {
  /** Stands in for the browser: a document that can be hidden, and a server whose streams the test writes. */
  function browser(t) {
    const streams = [];
    const doc = Object.assign(new EventTarget(), { hidden: false });
    const kept = { document: globalThis.document, fetch: globalThis.fetch, localStorage: globalThis.localStorage };
    globalThis.document = doc;
    globalThis.localStorage = { getItem: () => 'token' };
    globalThis.fetch = async (path, { signal }) => {
      const stream = { status: 200 };
      const body = new ReadableStream({ start: (c) => (stream.control = c) });
      signal.addEventListener('abort', () => stream.control.error(new DOMException('', 'AbortError')));
      streams.push(stream);
      return new Response(body);
    };
    mock.timers.enable({ apis: ['setTimeout', 'Date'] });
    t.after(() => {
      mock.timers.reset();
      Object.assign(globalThis, kept);
    });
    const settle = async () => {
      for (let i = 0; i < 20; i++) await new Promise((done) => setImmediate(done));
    };
    const see = (seen) => {
      doc.hidden = !seen;
      doc.dispatchEvent(new Event('visibilitychange'));
    };
    const say = (text) => streams.at(-1).control.enqueue(new TextEncoder().encode(text));
    return { streams, settle, see, say };
  }

  test('a stream that ends is made again, beginning with a reset', async (t) => {
    const { streams, settle, say } = browser(t);
    const messages = [];
    const states = [];
    const stop = follow('/x', (m) => messages.push(m.type), (c) => states.push(c.state));
    await settle();
    say('{"type":"a"}\n{"type":');
    await settle();
    streams[0].control.close();
    await settle();
    assert.deepEqual([messages, states], [['a'], ['connecting', 'connected', 'lost']]);
    mock.timers.tick(999);
    await settle();
    assert.equal(streams.length, 1);
    mock.timers.tick(1);
    await settle();
    say('{"type":"b"}\n');
    await settle();
    assert.deepEqual(messages, ['a', 'reset', 'b']);
    stop();
    mock.timers.tick(60000);
    await settle();
    assert.equal(streams.length, 2);
  });
  test('a stream that is silent for long is made again', async (t) => {
    const { streams, settle } = browser(t);
    const states = [];
    const stop = follow('/x', () => {}, (c) => states.push(c.state));
    await settle();
    mock.timers.tick(45000);
    await settle();
    assert.equal(states.at(-1), 'lost');
    mock.timers.tick(1000);
    await settle();
    assert.equal(streams.length, 2);
    stop();
  });
  test('a page that nobody sees gives its connection back until it is seen again', async (t) => {
    const { streams, settle, see, say } = browser(t);
    const states = [];
    const stop = follow('/x', () => {}, (c) => states.push(c.state));
    await settle();
    see(false);
    mock.timers.tick(30000);
    see(true);
    say('{"type":"ping"}\n');
    await settle();
    assert.equal(streams.length, 1, 'a short look elsewhere ends nothing');
    see(false);
    mock.timers.tick(40000);
    say('{"type":"ping"}\n');
    await settle();
    mock.timers.tick(20000);
    await settle();
    mock.timers.tick(60000);
    await settle();
    assert.equal(streams.length, 1);
    see(true);
    await settle();
    assert.equal(streams.length, 2);
    assert.deepEqual(states, ['connecting', 'connected', 'connecting', 'connected']);
    stop();
  });
});

describe('store', () => {
  test('rows come, change and go', () => {
    const s = newOverview();
    reduceOverview(s, { type: 'workload', workload: row('a', 'done') });
    reduceOverview(s, { type: 'workload', workload: row('a', 'failed') });
    reduceOverview(s, { type: 'workload', workload: row('b', 'done') });
    reduceOverview(s, { type: 'gone', id: 'b' });
    assert.deepEqual([...s.rows.values()].map((r) => [r.name, r.state]), [['a', 'failed']]);
  });
  test('after a reset the old rows stay until the new list is whole', () => {
    const s = newOverview();
    for (const name of ['a', 'b']) reduceOverview(s, { type: 'workload', workload: row(name, 'done') });
    reduceOverview(s, { type: 'note', text: 'n' });
    reduceOverview(s, { type: 'reset' });
    reduceOverview(s, { type: 'reset' });
    assert.deepEqual(s.notes, []);
    reduceOverview(s, { type: 'workload', workload: row('b', 'done') });
    assert.equal(s.rows.size, 2);
    reduceOverview(s, { type: 'synced' });
    assert.deepEqual([...s.rows.keys()], ['b']);
  });
  test('notes are kept once, and notes replace them', () => {
    const s = newOverview();
    for (const text of ['x', 'x', 'y']) reduceOverview(s, { type: 'note', text });
    assert.deepEqual(s.notes, ['x', 'y']);
    reduceOverview(s, { type: 'notes', notes: ['z'] });
    assert.deepEqual(s.notes, ['z']);
  });
  test('pods stand in order of their numbers and keep it when only their state changes', () => {
    const s = newWorkload();
    reduceWorkload(s, { type: 'pods', pods: [tile('web-10'), tile('web-2')] });
    assert.deepEqual(inOrder(s).map((t) => t.name), ['web-2', 'web-10']);
    const order = s.order;
    reduceWorkload(s, { type: 'pods', pods: [tile('web-2', { state: 'new' })] });
    assert.equal(s.order, order);
    assert.equal(inOrder(s)[0].state, 'new');
    reduceWorkload(s, { type: 'podsGone', pods: ['shop/web-2'] });
    assert.deepEqual(inOrder(s).map((t) => t.name), ['web-10']);
  });
  test('pods that do not come again after a reset go', () => {
    const s = newWorkload();
    reduceWorkload(s, { type: 'pods', pods: [tile('a'), tile('b')] });
    reduceWorkload(s, { type: 'reset' });
    reduceWorkload(s, { type: 'pods', pods: [tile('b')] });
    reduceWorkload(s, { type: 'podsSynced' });
    assert.deepEqual(inOrder(s).map((t) => t.name), ['b']);
  });
  test('lists that are null are empty, and a workload that comes again is not gone', () => {
    const s = newWorkload();
    for (const type of ['events', 'budgets', 'subsets', 'notes', 'pods', 'podsGone']) reduceWorkload(s, { type, [type]: null });
    assert.deepEqual([s.events, s.budgets, s.subsets, s.notes], [[], [], [], []]);
    reduceWorkload(s, { type: 'gone' });
    assert.equal(s.gone, true);
    reduceWorkload(s, { type: 'workload', workload: row('web', 'done') });
    assert.equal(s.gone, false);
  });
  test('followers are told once for all messages between two frames', () => {
    let frame;
    let told = 0;
    const store = new Store([], (s, m) => s.push(m), (f) => (frame = f));
    const off = store.subscribe(() => told++);
    store.push(1);
    store.push(2);
    assert.equal(told, 0);
    frame();
    assert.equal(told, 1);
    store.push(3);
    frame();
    assert.equal(told, 2);
    off();
    store.push(4);
    frame();
    assert.equal(told, 2);
    assert.equal(store.version, 4);
  });
});

describe('rows', () => {
  const rows = [
    row('d', 'done'), row('p', 'paused'), row('r', 'rolling'), row('w', 'waiting', { waiting: 'MaxUnavailable' }),
    row('f2', 'failed', { namespace: 'zoo' }), row('f1', 'failed', { images: ['nginx:1.29'] }), row('u', 'unknown'),
  ];
  const none = { namespace: '', kind: '', state: '', text: '' };
  test('what needs eyes stands first', () => {
    assert.deepEqual(chosenRows(rows, none).map((r) => r.name), ['f1', 'f2', 'w', 'r', 'p', 'u', 'd']);
  });
  test('filters and search', () => {
    assert.deepEqual(chosenRows(rows, { ...none, state: 'failed', namespace: 'zoo' }).map((r) => r.name), ['f2']);
    assert.deepEqual(chosenRows(rows, { ...none, text: 'NGINX shop' }).map((r) => r.name), ['f1']);
    assert.deepEqual(chosenRows(rows, { ...none, text: 'maxun' }).map((r) => r.name), ['w']);
    assert.deepEqual(chosenRows(rows, { ...none, kind: 'Other' }), []);
    assert.equal(countStates(rows).failed, 2);
  });
  test('the filter is read from the query', () => {
    assert.deepEqual(filterOf(new URLSearchParams('namespace=+a&q=x+&state=done')), { namespace: 'a', kind: '', state: 'done', text: 'x ' });
  });
  test('only rows that are seen are drawn', () => {
    assert.deepEqual(seenRows(0, 100, 10, 1000, 2), { from: 0, to: 12 });
    assert.deepEqual(seenRows(500, 100, 10, 1000, 2), { from: 48, to: 62 });
    assert.deepEqual(seenRows(9990, 100, 10, 1000, 2), { from: 997, to: 1000 });
    assert.deepEqual(seenRows(9990, 100, 10, 3, 2), { from: 3, to: 3 });
  });
});

describe('grouping', () => {
  const tiles = [
    tile('a', { revision: 'r1', node: 'node-10', subset: 'z' }), tile('b', { revision: 'r2', new: true, state: 'new', node: 'node-2' }),
    tile('c', { revision: 'r1', state: 'held', node: 'node-10', subset: 'y' }),
  ];
  const shape = (groups) => groups.map((g) => [g.title, g.tiles.map((t) => t.name).join('')]);
  test('by each', () => {
    assert.deepEqual(shape(groupTiles(tiles, 'nothing')), [['', 'abc']]);
    assert.deepEqual(groupTiles([], 'nothing'), []);
    assert.deepEqual(shape(groupTiles(tiles, 'revision')), [['r1', 'ac'], ['r2 (new)', 'b']]);
    assert.deepEqual(shape(groupTiles(tiles, 'node')), [['node-2', 'b'], ['node-10', 'ac']]);
    assert.deepEqual(shape(groupTiles(tiles, 'state')), [['Held', 'c'], ['Old revision', 'a'], ['New revision', 'b']]);
  });
  test('subsets keep their order and stand without pods too', () => {
    const subsets = [{ name: 'x' }, { name: 'y' }, { name: 'z' }];
    assert.deepEqual(shape(groupTiles(tiles, 'subset', subsets)), [['x', ''], ['y', 'c'], ['z', 'a'], ['In no subset', 'b']]);
  });
  test('counts', () => assert.deepEqual(countTiles(tiles), { old: 1, new: 1, held: 1 }));
  test('steps by action, with reasons and restarts', () => {
    const groups = groupSteps([
      { pod: 'a', action: 'update in place', restarts: ['app'] },
      { pod: 'b', action: 'recreate', reason: 'NotInPlace', message: 'volumes' },
      { pod: 'c', action: 'update in place', restarts: ['app', 'envoy'] },
    ]);
    assert.deepEqual(groups.map((g) => [g.action, g.steps.length, g.restarts]), [['update in place', 2, ['app', 'envoy']], ['recreate', 1, []]]);
    assert.deepEqual(groups[1].reasons, [{ text: 'NotInPlace: volumes', count: 1 }]);
  });
  test('pods that are left by reason', () => {
    const found = groupLeft([{ name: 'a', state: 'waiting', reason: 'P' }, { name: 'b', state: 'waiting' }, { name: 'c', state: 'waiting', reason: 'P' }]);
    assert.deepEqual(found.map((g) => [g.text, g.pods.length]), [['P', 2], ['waiting', 1]]);
  });
});

describe('layout', () => {
  const ids = (n, p = 'p') => Array.from({ length: n }, (_, i) => `${p}${i}`);
  const sizes = { w: 10, h: 10, head: 0, gap: 0 };
  test('5,000 tiles: only those that are seen', () => {
    const l = layOut([{ key: '', ids: ids(5000) }], 100, sizes);
    assert.equal(l.height, 5000);
    assert.deepEqual(seenTiles(l, 1000, 1100).map(({ from, to }) => [from, to]), [[1000, 1100]]);
    assert.deepEqual(seenTiles(l, 4990, 5200).map(({ from, to }) => [from, to]), [[4990, 5000]]);
    assert.deepEqual(placeOf(l, l.blocks[0], 123), { x: 30, y: 120 });
  });
  test('blocks below each other, of which those out of sight are left out', () => {
    const l = layOut([{ key: 'a', ids: ids(25, 'a') }, { key: 'b', ids: ids(5, 'b') }], 100, { ...sizes, head: 20, gap: 10 });
    assert.equal(l.blocks[1].y, 60);
    assert.equal(l.height, 90);
    assert.deepEqual(seenTiles(l, 0, 50).map(({ block, from, to }) => [block.key, from, to]), [['a', 0, 25]]);
    assert.deepEqual(seenTiles(l, 55, 90).map(({ block, from, to }) => [block.key, from, to]), [['b', 0, 5]]);
  });
  test('columns, and no columns where there is no room', () => {
    const groups = [{ key: 'a', ids: ids(40, 'a') }, { key: 'b', ids: ids(5, 'b') }];
    const wide = layOut(groups, 400, sizes, true);
    assert.equal(wide.columns, true);
    assert.deepEqual([wide.blocks[1].x, wide.blocks[1].cols, wide.height], [200, 20, 20]);
    assert.equal(layOut(groups, 200, sizes, true).columns, false);
  });
  test('keys move within a block and to the next', () => {
    const l = layOut([{ key: 'a', ids: ids(25, 'a') }, { key: 'e', ids: [] }, { key: 'b', ids: ids(5, 'b') }], 100, sizes);
    const go = (from, key) => move(l, from, key, 2);
    assert.equal(go('a0', 'ArrowRight'), 'a1');
    assert.equal(go('a0', 'ArrowLeft'), 'a0');
    assert.equal(go('a24', 'ArrowRight'), 'b0');
    assert.equal(go('b0', 'ArrowLeft'), 'a24');
    assert.equal(go('a3', 'ArrowDown'), 'a13');
    assert.equal(go('a19', 'ArrowDown'), 'a24');
    assert.equal(go('a22', 'ArrowDown'), 'b2');
    assert.equal(go('b4', 'ArrowUp'), 'a24');
    assert.equal(go('b1', 'ArrowUp'), 'a21');
    assert.equal(go('a3', 'PageDown'), 'a23');
    assert.equal(go('a3', 'Home'), 'a0');
    assert.equal(go('a3', 'End'), 'b4');
    assert.equal(go('gone', 'ArrowDown'), 'a0');
    assert.equal(go('a3', 'x'), undefined);
    assert.deepEqual(find(l, 'b4'), { block: 2, index: 4 });
  });
  test('keys move between columns', () => {
    const l = layOut([{ key: 'a', ids: ids(40, 'a') }, { key: 'b', ids: ids(5, 'b') }], 400, sizes, true);
    assert.equal(move(l, 'a19', 'ArrowRight', 1), 'b0');
    assert.equal(move(l, 'a39', 'ArrowRight', 1), 'b4');
    assert.equal(move(l, 'b0', 'ArrowLeft', 1), 'a19');
    assert.equal(move(l, 'a25', 'ArrowDown', 1), 'a25');
  });
});

describe('words', () => {
  test('times', () => {
    assert.deepEqual([0, 35, 60, 125, 3600, 11040, 200000].map(length), ['0s', '35s', '1m', '2m 5s', '1h', '3h 4m', '2d']);
    const now = Date.parse('2026-01-01T00:01:00Z');
    assert.equal(ago('2026-01-01T00:00:00Z', now), '1m ago');
    assert.equal(ago(undefined, now), 'unknown');
    assert.equal(left('2026-01-01T00:01:09.5Z', now), 'in 10s');
    assert.equal(left('2026-01-01T00:00:00Z', now), 'now due');
    assert.equal(left('', now), undefined);
  });
  test('labels of tiles', () => {
    assert.equal(tileLabel(tile('web-x7k2p', { state: 'held', reason: 'MaxUnavailable', message: '1 pod is' })), 'web-x7k2p, old, held: MaxUnavailable: 1 pod is');
    assert.equal(tileLabel(tile('w', { state: 'new', new: true })), 'w, new');
  });
  test('shares and short names', () => {
    assert.deepEqual([share(1, 4), share(5, 4), share(0, 0), share(undefined, 3)], [0.25, 1, 1, 0]);
    assert.equal(shortName('web-abc', 'web'), 'abc');
    assert.equal(shortName('other', 'web'), 'other');
    assert.equal(shortImage('r.example/a/nginx:1'), 'nginx:1');
    assert.equal(shortImage('a/b@sha256:0123456789abcdef'), 'b@0123456789ab');
  });
  test('what is said aloud', () => {
    assert.equal(
      announcement(row('web', 'waiting', { updated: 4, target: 10, ready: 9, desired: 10, waiting: 'MaxUnavailable: 1 pod' })),
      'CloneSet web: waiting, 4 of 10 updated, 9 of 10 ready. It waits for MaxUnavailable: 1 pod.',
    );
  });
});

test('a diff holds only hunks with their context', () => {
  const before = Array.from({ length: 30 }, (_, i) => `line ${i}`).join('\n');
  const lines = diffLines(before, before.replace('line 15', 'other'));
  assert.deepEqual(lines.map((l) => l.sign).join(''), '@   -+   ');
  assert.deepEqual(diffLines(before, before), []);
});

describe('applying', () => {
  test('an undo goes back to the revision of its plan', () => {
    assert.deepEqual(planned({ action: 'undo', toRevision: 0 }, { toRevision: 2 }), { action: 'undo', toRevision: 2 });
    assert.deepEqual(planned({ action: 'pause' }, {}), { action: 'pause' });
  });
  test('nobody says that nothing was applied if the answer is lost', () => {
    assert.match(refusal(new Error('The server does not answer.')), /not known/);
    assert.doesNotMatch(refusal(new Error('The server does not answer.')), /Nothing was applied/);
  });
});
