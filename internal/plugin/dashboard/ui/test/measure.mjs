// Measures the page against the mock with 5,000 pods: how long the first paint takes, and how long frames take while one scrolls
// and pods change. Called by `npm run measure`; prints JSON.
import { chromium } from 'playwright-core';
import { start } from '../mock/server.mjs';

const WEB = '/workload/clonesets.apps.kruise.io/shop/web';
const server = await start({ quiet: true, pods: 5000, rows: 1, subsets: false });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const middle = (all) => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)];
const paints = [];
let frames = [];
for (let i = 0; i < 9; i++) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(`${server.address}${WEB}#token=${server.token}`);
  await page.locator('.tile').first().waitFor();
  paints.push(await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
  if (i === 8) {
    frames = await page.evaluate(async () => {
      const box = document.querySelector('.tiles');
      const took = [];
      let last = performance.now();
      for (let n = 0; n < 180; n++) {
        box.scrollTop += 120;
        await new Promise(requestAnimationFrame);
        const now = performance.now();
        took.push(now - last);
        last = now;
      }
      return took;
    });
  }
  await context.close();
}
await browser.close();
server.stop();
const round = (x) => Math.round(x * 10) / 10;
console.log(JSON.stringify({
  firstPaint: { median: round(middle(paints)), min: round(Math.min(...paints)), max: round(Math.max(...paints)) },
  frame: { median: round(middle(frames)), p95: round(frames.toSorted((a, b) => a - b)[Math.floor(frames.length * 0.95)]), max: round(Math.max(...frames)) },
}));
