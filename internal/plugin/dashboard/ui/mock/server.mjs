// Serves the page with made-up rollouts: node mock/server.mjs --pods 5000 --rows 3000 --port 8123
import { createServer } from 'node:http';
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { World, random, session } from './rollout.mjs';

export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const FILES = { '/assets/app.js': 'text/javascript; charset=utf-8', '/assets/app.css': 'text/css; charset=utf-8' };

export function start({ port = 0, token = 'mock', tick = 400, quiet = false, ...options } = {}) {
  const world = new World(options);
  const open = options.namespaces === false ? { ...session, namespaces: [] } : session;
  const state = { conflict: false, plan: undefined, streams: new Set() }; // a plan waits for the promise state.plan

  const stream = (req, res) => {
    res.writeHead(200, { 'Content-Type': 'application/x-ndjson', 'Content-Security-Policy': CSP, 'Cache-Control': 'no-store' });
    const send = (m) => res.write(`${JSON.stringify(m)}\n`);
    send({ type: 'reset' });
    const timers = [setInterval(() => send({ type: 'ping' }), 15000)];
    state.streams.add(res);
    res.on('close', () => {
      timers.forEach(clearInterval);
      state.streams.delete(res);
    });
    return { send, timers };
  };

  const overview = (req, res, url) => {
    const namespace = url.searchParams.get('namespace');
    if (namespace === 'forbidden') return fail(res, 403, 'user jane may not list workloads in namespace forbidden');
    const { send, timers } = stream(req, res);
    const fits = (r) => !namespace || r.namespace === namespace;
    for (const row of [world.detail(), ...world.rows]) if (fits(row)) send({ type: 'workload', workload: row });
    if (!open.namespaces.length && !namespace) send({ type: 'note', text: 'You may not list namespaces: choose one.' });
    send({ type: 'synced' });
    timers.push(
      setInterval(() => {
        if (fits({ namespace: 'shop' })) send({ type: 'workload', workload: world.detail() });
        for (let i = 0; i < 5 && world.rows.length; i++) {
          const row = world.rows[Math.floor(random() * world.rows.length)];
          if (row.state === 'rolling' && row.updated < row.target - 1) row.updated++;
          if (fits(row)) send({ type: 'workload', workload: row });
        }
      }, 1000),
    );
    return undefined;
  };

  const workload = (req, res, url) => {
    if (url.searchParams.get('name') !== 'web') {
      const row = world.rows.find((r) => r.name === url.searchParams.get('name'));
      if (!row) return fail(res, 404, `There is no workload ${url.searchParams.get('name')}.`);
      const { send } = stream(req, res);
      send({ type: 'workload', workload: { ...row, generation: 1, may: {}, mayNot: `user jane may not patch ${row.resource} in namespace ${row.namespace}` } });
      send({ type: 'podsSynced' });
      return undefined;
    }
    const { send, timers } = stream(req, res);
    const rest = () => {
      send({ type: 'workload', workload: world.detail() });
      send({ type: 'events', events: world.events });
      send({ type: 'budgets', budgets: world.budgets() });
      if (world.subsets.length) send({ type: 'subsets', source: 'WorkloadSpread/web', subsets: world.subsetList() });
    };
    const plans = () => {
      send({ type: 'explanation', explanation: world.explanation() });
      send({ type: 'waves', preview: world.preview() });
    };
    send({ type: 'workload', workload: world.detail() });
    send({ type: 'pods', pods: world.pods });
    send({ type: 'podsSynced' });
    rest();
    plans();
    const listener = (changed) => {
      if (changed.length) send({ type: 'pods', pods: changed });
      rest();
    };
    listeners.add(listener);
    timers.push(setInterval(plans, 2000));
    res.on('close', () => listeners.delete(listener));
    return undefined;
  };

  const listeners = new Set();
  const ticker = setInterval(() => {
    const changed = world.step();
    for (const f of listeners) f(changed);
  }, tick);

  const json = (res, value, status = 200) => {
    res.writeHead(status, { 'Content-Type': 'application/json', 'Content-Security-Policy': CSP });
    res.end(JSON.stringify(value));
  };
  const fail = (res, status, error) => json(res, { error }, status);

  const body = async (req) => {
    let text = '';
    for await (const piece of req) text += piece;
    return JSON.parse(text);
  };

  const doApply = (res, { change, generation }) => {
    if (state.conflict || generation !== world.generation) {
      state.conflict = false;
      return fail(res, 409, 'The spec was changed since the plan was made: look at the plan again.');
    }
    world.generation++;
    if (change.action === 'pause') world.paused = true;
    if (change.action === 'resume') world.paused = false;
    if (change.action === 'images') world.image = Object.values(change.images)[0];
    return json(res, { generation: world.generation });
  };

  const server = createServer(async (req, res) => {
    const url = new URL(req.url, 'http://localhost');
    const path = url.pathname;
    try {
      if (!path.startsWith('/api/')) {
        const file = FILES[path] ? path.replace('/assets/', '') : path === '/' || path.startsWith('/workload/') ? 'index.html' : undefined;
        if (!file) return fail(res, 404, 'There is no such file.');
        const data = await readFile(new URL(`../../assets/${file}`, import.meta.url));
        res.writeHead(200, { 'Content-Type': FILES[path] ?? 'text/html; charset=utf-8', 'Content-Security-Policy': CSP, 'X-Content-Type-Options': 'nosniff' });
        return res.end(data);
      }
      if (req.headers.authorization !== `Bearer ${token}`) return fail(res, 401, 'The token is not the one of this command.');
      if (path === '/api/session') return json(res, open);
      if (path === '/api/overview') return overview(req, res, url);
      if (path === '/api/workload') return workload(req, res, url);
      if (path === '/api/revisions') return json(res, { revisions: world.revisions() });
      if (path === '/api/document') return json(res, { yaml: world.yaml(), generation: world.generation });
      if (path === '/api/plan' && req.method === 'POST') {
        const { change } = await body(req);
        if (change.action === 'yaml' && !change.yaml.startsWith('apiVersion')) return fail(res, 422, 'The YAML has no apiVersion.');
        await state.plan;
        return json(res, { before: world.yaml(), after: world.yaml(change), generation: world.generation, ...(change.action === 'undo' && { toRevision: change.toRevision || 2 }), previews: [world.preview(change)] });
      }
      if (path === '/api/apply' && req.method === 'POST') return doApply(res, await body(req));
      return fail(res, 404, 'There is no such address.');
    } catch (err) {
      return fail(res, 500, String(err));
    }
  });

  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => {
      const address = `http://127.0.0.1:${server.address().port}`;
      if (!quiet) console.log(`${address}/#token=${token}\n${address}/workload/clonesets.apps.kruise.io/shop/web#token=${token}`);
      resolve({
        address,
        token,
        world,
        state,
        cut: () => state.streams.forEach((res) => res.destroy()),
        stop: () => {
          clearInterval(ticker);
          state.streams.forEach((res) => res.destroy());
          server.close();
          server.closeAllConnections();
        },
      });
    });
  });
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const options = {};
  for (let i = 2; i < process.argv.length; i += 2) {
    const value = process.argv[i + 1];
    options[process.argv[i].replace(/^--/, '')] = /^[\d.]+$/.test(value) ? Number(value) : value !== 'false';
  }
  await start(options);
}
