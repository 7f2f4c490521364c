import { after, before, describe, test } from 'node:test';
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { start } from '../mock/server.mjs';

const chromiumPath = process.env.CHROMIUM ?? '/usr/bin/chromium';
const skip = existsSync(chromiumPath) ? false : `There is no chromium at ${chromiumPath}: the browser tests are left out.`;
const WEB = '/workload/clonesets.apps.kruise.io/shop/web';

describe('the page in a browser', { skip, timeout: 600000 }, () => {
  let browser;
  let axe;
  const servers = [];

  before(async () => {
    const { chromium } = await import('playwright-core');
    browser = await chromium.launch({ executablePath: chromiumPath, args: ['--no-sandbox'] });
    axe = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
  });
  after(async () => {
    await browser?.close();
    servers.forEach((s) => s.stop());
  });

  async function serve(options) {
    const server = await start({ quiet: true, ...options });
    servers.push(server);
    return server;
  }

  /** Opens a page and watches for violations of the CSP, errors, and requests to other hosts. */
  async function open(server, path, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(60000);
    const wrong = [];
    page.on('pageerror', (err) => wrong.push(String(err)));
    page.on('console', (m) => /Content Security Policy|Refused to/.test(m.text()) && wrong.push(m.text()));
    page.on('request', (r) => !r.url().startsWith(server.address) && wrong.push(`request to ${r.url()}`));
    await page.addInitScript(() => {
      window.violations = [];
      document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
    });
    await page.goto(`${server.address}${path}#token=${server.token}`);
    const end = async () => {
      assert.deepEqual(await page.evaluate(() => window.violations), []);
      assert.deepEqual(wrong, []);
      await context.close();
    };
    return { page, end };
  }

  const until = (page, f, arg) => page.waitForFunction(f, arg, { polling: 50 });
  /** Waits until the focused tile has this place among all tiles. */
  const place = (page, at) => until(page, (n) => Number(document.activeElement.getAttribute('aria-posinset')) === n, at);

  test('without a token the page says how to open it', async () => {
    const server = await serve({ pods: 3, rows: 2 });
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(server.address);
    await page.getByRole('heading', { name: 'Open the page by the address that the command printed' }).waitFor();
    await page.goto(`${server.address}/?x#token=wrong`);
    await page.getByRole('heading', { name: 'Open the page by the address that the command printed' }).waitFor();
    await context.close();
  });

  test('the overview shows 3,000 workloads, and filters live in the address', async () => {
    const server = await serve({ pods: 20, rows: 3000 });
    const { page, end } = await open(server, '/');
    await page.getByText('3001 workloads').first().waitFor();
    assert.equal(page.url(), `${server.address}/`, 'the token is not in the address');
    assert.ok((await page.locator('.tbody .row').count()) < 60);
    await page.locator('.tbody').evaluate((el) => (el.scrollTop = el.scrollHeight));
    await page.locator('.tbody [aria-rowindex="3002"]').waitFor();
    await page.getByRole('searchbox').fill('web');
    await until(page, () => document.querySelectorAll('.tbody .row').length === 1);
    await page.waitForURL(/\?q=web$/);
    await page.reload();
    await until(page, () => document.querySelectorAll('.tbody .row').length === 1);
    await page.getByRole('searchbox').fill('');
    await page.getByRole('button', { name: /^Failed/ }).click();
    await until(page, () => [...document.querySelectorAll('.tbody .row')].every((r) => r.dataset.state === 'failed'));
    await page.getByRole('combobox', { name: 'Namespace' }).selectOption('payments');
    await until(page, () => {
      const cells = [...document.querySelectorAll('.tbody .c-ns')];
      return cells.length > 0 && cells.every((c) => c.textContent === 'payments');
    });
    await page.waitForURL(/state=failed&namespace=payments/);
    await end();
  });

  test('a workload opens, its tiles change live, keys move, and the panel opens', async () => {
    const server = await serve({ pods: 60, rows: 10, tick: 200 });
    const { page, end } = await open(server, '/');
    await page.getByRole('link', { name: 'web', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'CloneSet web' }).waitFor();
    await page.locator('.tile').first().waitFor();
    const seenNew = () => document.querySelectorAll('.tile[data-state="new"]').length;
    const first = await page.evaluate(seenNew);
    await until(page, (n) => document.querySelectorAll('.tile[data-state="new"]').length > n, first);

    await page.getByRole('combobox', { name: 'Group by' }).selectOption('nothing');
    await page.locator('.tile').first().focus();
    await page.keyboard.press('ArrowRight');
    await place(page, 2);
    await page.keyboard.press('ArrowDown');
    await until(page, () => Number(document.activeElement.getAttribute('aria-posinset')) > 2);
    await page.keyboard.press('End');
    await place(page, 60);
    await page.keyboard.press('Home');
    await place(page, 1);
    assert.equal(await page.locator('.tile[tabindex="0"]').count(), 1);
    await page.keyboard.press('Enter');
    await page.getByRole('complementary', { name: /^Pod web-/ }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('complementary').waitFor({ state: 'detached' });
    await place(page, 1); // the focus is on the tile again

    await page.getByRole('combobox', { name: 'Group by' }).selectOption('state');
    await page.locator('.tile').first().focus();
    await until(page, (n) => document.querySelectorAll('.tile[data-state="new"]').length > n + 3, await page.evaluate(seenNew));
    assert.ok(await page.evaluate(() => document.activeElement.matches('.tile')), 'the focus stays with a tile that moves');
    await page.locator('[data-legend="old"]').click();
    await until(page, () => document.querySelectorAll('.tile:not([data-state="old"])').length === 0);
    await page.waitForURL(/show=old/);
    await end();
  });

  test('5,000 pods: few tiles are in the document, and the last one is reached', async () => {
    const server = await serve({ pods: 5000, rows: 1, subsets: false });
    const { page, end } = await open(server, WEB);
    await page.getByText('5000 pods', { exact: true }).waitFor();
    await page.locator('.tile').first().waitFor();
    const count = await page.locator('.tile').count();
    assert.ok(count < 800, `${count} tiles`);
    await page.locator('.tiles').evaluate((el) => (el.scrollTop = el.scrollHeight));
    await page.locator('.tile[aria-posinset="5000"]').waitFor();
    assert.ok((await page.locator('.tile').count()) < 800);
    await page.locator('.tiles').evaluate((el) => (el.scrollTop = 0));
    await page.locator('.tile[aria-posinset="1"]').focus();
    await page.keyboard.press('End');
    await place(page, 5000);
    for (const by of ['node', 'revision', 'state', 'subset']) {
      await page.getByRole('combobox', { name: 'Group by' }).selectOption(by);
      await page.waitForTimeout(200);
      assert.ok((await page.locator('.tile').count()) < 800, by);
    }
    await end();
  });

  test('an action shows its plan before it can be applied, and says what failed', async () => {
    const server = await serve({ pods: 30, rows: 1 });
    const { page, end } = await open(server, WEB);
    let planned;
    server.state.plan = new Promise((resolve) => (planned = resolve));
    await page.getByRole('button', { name: 'Pause' }).click();
    const dialog = page.getByRole('dialog');
    const apply = dialog.getByRole('button', { name: 'Apply' });
    assert.equal(await apply.isDisabled(), true, 'no apply before the plan');
    planned();
    await dialog.locator('[data-test="plan"]').waitFor();
    await dialog.getByText('It does not end by itself.').waitFor();
    await dialog.getByText('paused: true').waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    assert.equal(server.world.paused, false);
    await until(page, () => document.activeElement.textContent === 'Pause');

    await page.getByRole('button', { name: 'Pause' }).click();
    server.state.conflict = true;
    await apply.click();
    await dialog.getByText('Nothing was applied, since the workload was changed in the meantime.').waitFor();
    await dialog.getByRole('button', { name: 'Make the plan again' }).click();
    await apply.click();
    await page.getByText('Pause was applied. The generation is now 4.').waitFor();
    assert.equal(server.world.paused, true);
    await page.getByRole('button', { name: 'Resume' }).waitFor();

    await page.getByRole('button', { name: 'Scale' }).click();
    await dialog.getByRole('spinbutton').fill('12');
    await dialog.getByRole('button', { name: 'Show the plan' }).click();
    await dialog.getByText('replicas: 12').waitFor();
    await dialog.getByRole('spinbutton').fill('13');
    await dialog.getByText('The fields were changed since the plan was made.').waitFor();
    assert.equal(await apply.count(), 0);
    await page.keyboard.press('Escape');
    await end();
  });

  test('what is not allowed is said', async () => {
    const server = await serve({ pods: 3, rows: 2 });
    const { page, end } = await open(server, '/workload/clonesets.apps.kruise.io/default/cart-0');
    const button = page.getByRole('button', { name: 'Restart' });
    await button.focus();
    await page.keyboard.press('Enter');
    await page.getByText('user jane may not patch').waitFor();
    assert.equal(await page.getByRole('dialog').count(), 0);
    await end();
  });

  test('without a list of namespaces there is a field, and what is forbidden is said', async () => {
    const server = await serve({ pods: 60, rows: 20, namespaces: false });
    const { page, end } = await open(server, '/');
    await page.getByText('You may not list namespaces: choose one.').waitFor();
    const field = page.getByRole('textbox', { name: 'Namespace' });
    await field.fill('payments');
    const before = await page.locator('.tbody').textContent();
    await until(page, (text) => document.querySelector('.tbody').textContent !== text, before);
    assert.equal(await field.inputValue(), 'payments', 'what is typed stays while rows change');
    await page.keyboard.press('Enter');
    await until(page, () => {
      const cells = [...document.querySelectorAll('.tbody .c-ns')];
      return cells.length > 0 && cells.every((c) => c.textContent === 'payments');
    });
    await field.fill('forbidden');
    await page.keyboard.press('Enter');
    await page.getByText('user jane may not list workloads in namespace forbidden').waitFor();
    await end();
  });

  test('an object of the whole cluster has a page', async () => {
    const server = await serve({ pods: 3, rows: 20 });
    const { page, end } = await open(server, '/');
    await page.getByRole('link', { name: 'mesh' }).click();
    await page.getByRole('heading', { level: 1, name: 'SidecarSet mesh' }).waitFor();
    await page.waitForURL(/\/workload\/sidecarsets\.apps\.kruise\.io\/-\/mesh$/);
    await page.goBack();
    await page.getByRole('heading', { level: 1, name: 'Workloads' }).waitFor();
    await end();
  });

  test('revisions are compared, and what-if plans images and YAML', async () => {
    const server = await serve({ pods: 30, rows: 1 });
    const { page, end } = await open(server, `${WEB}?tab=revisions`);
    await page.getByRole('heading', { name: 'From revision 2 to revision 3' }).waitFor();
    assert.equal(await page.locator('.diff [data-sign="+"]').count(), 1);
    await page.getByLabel('Compare from revision 1').check();
    await page.getByRole('heading', { name: 'From revision 1 to revision 3' }).waitFor();
    await page.getByRole('button', { name: 'What if' }).click();
    await page.getByLabel('Image of container app').fill('nginx:1.30');
    await page.getByRole('button', { name: 'Show the plan' }).click();
    await page.getByText('Wave 2').waitFor();
    await page.getByRole('button', { name: 'YAML' }).click();
    const area = page.getByLabel('YAML of the workload');
    await area.fill('nonsense');
    await page.getByRole('button', { name: /plan/ }).click();
    await page.getByText('The YAML has no apiVersion.').waitFor();
    await page.getByRole('button', { name: 'Load the present YAML again' }).click();
    await until(page, () => document.querySelector('textarea').value.startsWith('apiVersion'));
    await area.fill((await area.inputValue()).replace('maxUnavailable: 1', 'maxUnavailable: 2'));
    await page.getByRole('button', { name: /plan/ }).click();
    await page.locator('[data-test="plan"] .diff').getByText('maxUnavailable: 2').waitFor();
    await page.getByRole('button', { name: 'Apply' }).click();
    await page.getByText('The change was applied. The generation is now 4.').waitFor();
    await end();
  });

  test('YAML that others have changed meanwhile is told to take their change back', async () => {
    const server = await serve({ pods: 3, rows: 2 });
    const { page, end } = await open(server, `${WEB}?tab=what-if`);
    await page.getByRole('button', { name: 'YAML' }).click();
    const area = page.getByLabel('YAML of the workload');
    await area.fill(`${await area.inputValue()}# edited`);
    const said = page.getByText('was changed since this YAML was loaded');
    await page.getByRole('button', { name: 'Show the plan' }).click();
    await page.locator('[data-test=plan]').waitFor();
    assert.equal(await said.count(), 0);
    server.world.generation++;
    await area.fill(`${await area.inputValue()} again`);
    await page.getByRole('button', { name: 'Make the plan again' }).click();
    await said.waitFor();
    await end();
  });

  test('a lost connection is said, and made again', async () => {
    const server = await serve({ pods: 10, rows: 1 });
    const { page, end } = await open(server, WEB);
    await page.locator('.connection[data-state="connected"]').waitFor();
    server.cut();
    await page.getByText('lost: trying again in').waitFor();
    await page.locator('.connection[data-state="connected"]').waitFor();
    await until(page, () => document.querySelectorAll('.tile').length === 10);
    await end();
  });

  test('it fits into 360 pixels', async () => {
    const server = await serve({ pods: 200, rows: 20 });
    for (const path of ['/', WEB, `${WEB}?tab=revisions`, `${WEB}?tab=what-if`]) {
      const { page, end } = await open(server, path, { viewport: { width: 360, height: 740 } });
      await page.locator('.connection[data-state="connected"]').waitFor();
      await page.waitForTimeout(300);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360, path);
      await end();
    }
  });

  for (const colorScheme of ['light', 'dark']) {
    test(`axe finds nothing serious in ${colorScheme}`, async () => {
      const server = await serve({ pods: 200, rows: 40 });
      const check = async (page, where) => {
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
        const bad = violations.filter((v) => ['serious', 'critical'].includes(v.impact));
        assert.deepEqual(bad.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(' | ')}`), [], where);
      };
      const { page, end } = await open(server, '/', { colorScheme });
      await page.getByText('41 workloads').first().waitFor();
      await check(page, 'overview');
      await page.goto(`${server.address}${WEB}`);
      await page.locator('.tile').first().click();
      await page.waitForTimeout(1500);
      await check(page, 'workload');
      await page.getByRole('combobox', { name: 'Group by' }).selectOption('state');
      await page.getByLabel('Names').check();
      await check(page, 'groups with names');
      await page.getByRole('button', { name: 'Restart' }).click();
      await page.locator('[data-test="plan"]').waitFor();
      await check(page, 'dialog');
      await page.keyboard.press('Escape');
      for (const name of ['Revisions', 'What if']) {
        await page.getByRole('button', { name, exact: true }).click();
        await page.waitForTimeout(300);
        await check(page, name);
      }
      await end();
    });
  }
});
