// The console of a busy server: 1,000,000 held locks, and 10,000 acquires and releases per second. Measures how soon the page is painted, and
// the processor time of the server with open pages and without.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { browse, newPage } from './browser.js';
import { start } from './server.js';

const HELD_COUNT = 1_000_000;
const PAINT_COUNT = 9;
const FIRST_PAINT_MS_MAX = 1_000;
/** Measurements of the processor time, each without pages and with pages. */
const ROUND_COUNT = 5;
const ROUND_MS = 15_000;
/** Several pages, because the cost of one is less than the noise. One is in the browser, the others only read what the server sends. */
const OPEN_COUNT = 40;
const COST_PERCENT_MAX = 1;

const median = (numbers) => numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];

/** Processor time of a process in seconds. Linux counts it in hundredths. */
function processorTime(pid) {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** Share of a core that the server uses, in percent. */
async function use(server) {
  const [time, begun] = [processorTime(server.pid), performance.now()];
  await sleep(ROUND_MS);
  return ((processorTime(server.pid) - time) / (performance.now() - begun)) * 100_000;
}

/** Opens the overview, and waits until it shows live numbers. */
async function open(browser, server) {
  const page = await newPage(browser);
  await page.goto(server.console);
  await page.waitForFunction(() => /^[\d.,]/.test(document.querySelector('[data-live="held"]')?.textContent ?? ''));
  return page;
}

/** Reads the live view like a page, until `end`. `count` counts what arrives. */
function view(server) {
  const controller = new AbortController();
  const viewed = { count: 0, end: () => controller.abort() };
  (async () => {
    const { body } = await fetch(`${server.console}/api/live`, { signal: controller.signal });
    for await (const _ of body) viewed.count++;
  })().catch((error) => assert.equal(error.name, 'AbortError'));
  return viewed;
}

async function heldCount(page) {
  const text = await page.textContent('[data-live="held"]');
  return Number(text.replaceAll(',', ''));
}

test('with a million locks the page is painted in time and costs the server little', async (t) => {
  const server = await start('--workers=1');
  t.after(() => server.end());
  const browser = await browse();
  t.after(() => browser.close());
  const ends = ['--duration=1h', '--warmup=0s'];
  server.load('--workload=renew', `--keys=${HELD_COUNT}`, '--lease=3600s', '--rate=1', '--connections=1', ...ends);
  server.load('--workload=pair', '--rate=10000', '--connections=50', ...ends);
  let page = await open(browser, server);
  while ((await heldCount(page)) < HELD_COUNT) await sleep(500);

  const paints = [];
  const lives = [];
  for (let count = 0; count < PAINT_COUNT; count++) {
    await page.close();
    page = await open(browser, server);
    const [paint, live] = await page.evaluate(() => [
      performance.getEntriesByName('first-contentful-paint')[0].startTime,
      performance.now(),
    ]);
    paints.push(paint);
    lives.push(live);
  }

  const costs = [];
  for (let count = 0; count < ROUND_COUNT; count++) {
    await page.close();
    const without = await use(server);
    page = await open(browser, server);
    const views = Array.from({ length: OPEN_COUNT - 1 }, () => view(server));
    const [held, withPages] = [await heldCount(page), await use(server)];
    views.forEach((view) => view.end());
    assert.ok(views.every(({ count }) => count >= ROUND_MS / 1_000), 'each view has events');
    assert.ok(held >= HELD_COUNT, `${held} locks are held`);
    costs.push((withPages - without) / OPEN_COUNT);
    t.diagnostic(`server: ${without.toFixed(2)} % of a core without a page, ${withPages.toFixed(2)} % with ${OPEN_COUNT}`);
  }
  const [paint, live, cost] = [Math.max(...paints), Math.max(...lives), median(costs)];
  t.diagnostic(`first paint: median ${median(paints).toFixed()} ms, longest ${paint.toFixed()} ms; live numbers: median ${median(lives).toFixed()} ms, longest ${live.toFixed()} ms`);
  t.diagnostic(`a page costs ${cost.toFixed(3)} % of a core`);
  assert.ok(paint < FIRST_PAINT_MS_MAX);
  assert.ok(cost < COST_PERCENT_MAX);
});
