// Watches a rollout on a cluster. test/e2e/dashboard_test.go prepares the cluster and starts this with ADDRESS and LOOKER, the
// addresses of two dashboards, NAMESPACE, and PICTURES, a folder for pictures.
import { after, before, test } from 'node:test';
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const { ADDRESS, LOOKER, NAMESPACE, PICTURES } = process.env;
const patience = 120000;
let browser;

before(async () => {
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
});
after(() => browser?.close());

async function open(address, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const wrong = [];
  page.on('pageerror', (err) => wrong.push(String(err)));
  page.on('console', (m) => /Content Security Policy|Refused to/.test(m.text()) && wrong.push(m.text()));
  page.on('request', (r) => !r.url().startsWith(new URL(address).origin) && wrong.push(`request to ${r.url()}`));
  await page.goto(address);
  return { page, end: async () => { assert.deepEqual(wrong, []); await context.close(); } };
}

const picture = (page, name) => page.screenshot({ path: join(PICTURES, `${name}.png`) });

/** Waits until f is true in the page. If that does not happen, the error has what the page shows instead. */
async function until(page, f, arg) {
  try {
    await page.waitForFunction(f, arg, { polling: 50 });
  } catch (err) {
    const text = await page.locator('body').innerText();
    const tiles = await page.evaluate(() => [...document.querySelectorAll('.tile')].map((t) => t.dataset.state));
    throw new Error(`${f} is not true of ${JSON.stringify(arg)}. Tiles: ${tiles}. The page:\n${text}`, { cause: err });
  }
}

const tab = (page, name) => page.getByRole('button', { name, exact: true }).click();
const all = (page, state, n) =>
  until(page, ([s, n]) => document.querySelectorAll(`.tile[data-state="${s}"]`).length === n, [state, n]);

/** Notes each state that a tile has from now on. */
const watchTiles = (page) =>
  page.evaluate(() => {
    window.seen = new Set();
    const look = () => document.querySelectorAll('.tile').forEach((t) => window.seen.add(t.dataset.state));
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true });
  });

async function planImage(page, image) {
  await tab(page, 'What if');
  await page.getByLabel('Image of container nginx').fill(image);
  await page.getByRole('button', { name: 'Show the plan' }).click();
  await page.locator('[data-test="plan"]').waitFor();
}

async function apply(page) {
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('The change was applied.').waitFor();
}

test('a rollout is planned, applied and watched from its start to its end', async () => {
  const { page, end } = await open(ADDRESS, { colorScheme: 'light' });
  await all(page, 'new', 6);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  console.log(`first contentful paint after ${Math.round(paint)} ms`);

  await planImage(page, 'nginx:1.27');
  await page.locator('[data-test="plan"]').getByText('Wave 6').waitFor();
  await picture(page, 'plan-light');
  await apply(page);
  await tab(page, 'Live');
  await watchTiles(page);
  await until(page, () => {
    const count = (state) => document.querySelectorAll(`.tile[data-state="${state}"]`).length;
    return count('new') > 1 && count('held') > 1;
  });
  await picture(page, 'rollout-light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await picture(page, 'rollout-dark');
  await all(page, 'new', 6);
  const seen = await page.evaluate(() => [...window.seen]);
  assert.ok(seen.includes('updating') || seen.includes('notReady'), `pods leave service for a moment, seen was ${seen}`);
  await until(page, () => document.querySelector('[data-state="done"]'));
  await end();
});

test('a change that is refused says why', async () => {
  const { page, end } = await open(ADDRESS);
  await tab(page, 'What if');
  await page.getByRole('button', { name: 'YAML' }).click();
  const area = page.getByLabel('YAML of the workload');
  await until(page, () => document.querySelector('textarea')?.value.includes('replicas: 6'));
  await area.fill((await area.inputValue()).replace('maxUnavailable: 1', 'maxUnavailable: many'));
  await page.getByRole('button', { name: 'Show the plan' }).click();
  await page.getByText(/maxUnavailable.*many/).first().waitFor();
  assert.equal(await page.getByRole('button', { name: 'Apply' }).count(), 0);
  await picture(page, 'refused-light');
  await end();
});

test('a rollout that waits says for what, and is undone', async () => {
  const { page, end } = await open(ADDRESS, { colorScheme: 'dark' });
  await planImage(page, 'nginx:no-such-version');
  await apply(page);
  await tab(page, 'Live');
  await page.getByText('UpdatedPodsUnavailable').first().waitFor();
  await all(page, 'held', 5);
  await picture(page, 'waiting-dark');
  await page.emulateMedia({ colorScheme: 'light' });
  await picture(page, 'waiting-light');

  await page.getByRole('button', { name: 'Undo' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.locator('[data-test="plan"]').waitFor();
  await dialog.getByRole('button', { name: 'Apply' }).click();
  await all(page, 'new', 6);
  await end();
});

test('a user without rights sees what he may, and why he may do no more', async () => {
  const { page, end } = await open(LOOKER);
  const field = page.getByRole('textbox', { name: 'Namespace' });
  await field.fill(NAMESPACE);
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: 'web', exact: true }).click();
  await page.locator('.tile').first().waitFor();
  const button = page.getByRole('button', { name: 'Restart' });
  await button.focus();
  await page.keyboard.press('Enter');
  await page.getByText('may not patch').first().waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0);
  await picture(page, 'looker-light');
  await end();
});
