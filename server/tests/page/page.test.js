// The console in a real browser, with a real server: the tasks of a new operator, accessibility, rights, and what the page loads.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { browse, newPage } from './browser.js';
import { start } from './server.js';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const named = (name) => `[data-test="${name}"]`;
let browser;

before(async () => {
  browser = await browse();
});

after(() => browser?.close());

/** Calls this after the test, and before everything that was to be called after it so far. */
function afterwards(t, action) {
  const actions = (t.actions ??= (() => {
    const all = [];
    t.after(async () => {
      for (const one of all.reverse()) await one();
    });
    return all;
  })());
  actions.push(action);
}

/** Opens the console. The test fails if the page logs an error other than `expected`, or loads anything from elsewhere. */
async function open(t, server, expected = /^$/) {
  const page = await newPage(browser);
  const problems = [];
  page.on('pageerror', (error) => problems.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(server.console) && !url.startsWith('data:')) problems.push(`loads ${url}`);
  });
  afterwards(t, async () => {
    await page.close();
    assert.deepEqual(problems.filter((problem) => !expected.test(problem)), []);
  });
  await page.goto(server.console);
  return page;
}

/** Starts a server that ends with the test. */
async function started(t, ...more) {
  const server = await start(...more);
  afterwards(t, () => server.end());
  return server;
}

/** Opens a key by the search field of the header. */
async function openKey(page, key) {
  await page.keyboard.press('/');
  await page.keyboard.type(key);
  await page.keyboard.press('Enter');
  await page.waitForSelector(`${named('holders')} tbody tr`);
}

/** Waits until the text of an element matches. */
async function shows(page, selector, pattern) {
  await page.waitForFunction(
    ([selector, source]) => [...document.querySelectorAll(selector)].some((element) => new RegExp(source).test(element.textContent)),
    [selector, pattern.source],
  );
}

/** Two locks, one of them with two waiters in the order in which they came. */
async function contended(t, page, server) {
  server.lock('free/1');
  server.lock('jobs/nightly');
  await shows(page, '[data-live="held"]', /^2$/);
  server.lock('jobs/nightly');
  await shows(page, '[data-live="waiting"]', /^1$/);
  server.lock('jobs/nightly');
  await shows(page, '[data-live="waiting"]', /^2$/);
}

test('an operator finds who holds a key', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  server.lock('jobs/nightly');
  await shows(page, '[data-live="held"]', /^1$/);
  await openKey(page, 'jobs/nightly');
  await shows(page, named('key-status'), /Held by/);
  assert.match(page.url(), /key_hex=6a6f62732f6e696768746c79/);
});

test('an operator finds the longest waiter and the contended key', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  await contended(t, page, server);
  await page.click(named('nav-waiters'));
  await page.waitForSelector(`${named('all-waiters')} tbody tr[data-key="jobs/nightly"]`);
  await page.click(named('nav-contention'));
  await page.waitForSelector('tr[data-key="jobs/nightly"]');
});

test('an operator frees a stuck lock with a reason', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  await contended(t, page, server);
  await openKey(page, 'jobs/nightly');
  const release = `${named('holders')} ${named('force-release')}`;
  const holder = await page.getAttribute(`${named('holders')} tbody tr`, 'data-owner');
  await page.click(release);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.test), 'dialog-cancel', 'cancel has the focus');
  await page.click(named('dialog-confirm'));
  await shows(page, named('dialog-error'), /reason/);
  await page.fill(named('dialog-reason'), 'the host is gone');
  await page.click(named('dialog-confirm'));
  await page.waitForSelector(named('dialog-result'));
  await page.click(named('dialog-cancel'));
  await page.waitForFunction(
    ([selector, owner]) => {
      const row = document.querySelector(selector);
      return row && row.dataset.owner !== owner;
    },
    [`${named('holders')} tbody tr`, holder],
  );
});

test('an operator freezes a prefix and thaws it', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  server.lock('jobs/nightly');
  await shows(page, '[data-live="held"]', /^1$/);
  await openKey(page, 'jobs/nightly');
  await page.click(named('freeze'));
  await page.fill(named('dialog-prefix'), 'jobs/');
  await page.fill(named('dialog-reason'), 'maintenance');
  await page.click(named('dialog-confirm'));
  await page.waitForSelector(named('dialog-result'));
  await page.click(named('dialog-cancel'));
  await page.waitForSelector(named('frozen-notice'));
  await page.goto(`${server.console}#/namespace?namespace=default&tab=frozen`);
  await page.click(`${named('frozen')} tr[data-prefix="jobs/"] ${named('thaw')}`);
  await page.fill(named('dialog-reason'), 'done');
  await page.click(named('dialog-confirm'));
  await page.waitForSelector(named('dialog-result'));
  await page.click(named('dialog-cancel'));
  await page.waitForSelector(named('frozen-empty'));
});

test('an operator gives a pool more permits', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  server.permit('exports');
  await shows(page, '[data-live="held"]', /^1$/);
  await page.click(named('nav-namespaces'));
  const pool = await page.waitForSelector(`${named('namespaces')} tr[data-namespace^="sem/"]`);
  const namespace = await pool.getAttribute('data-namespace');
  await page.goto(`${server.console}#/key?namespace=${encodeURIComponent(namespace)}&key=exports`);
  await page.click(`${named('resize')}:visible`);
  await page.fill(named('dialog-capacity'), '12');
  await page.fill(named('dialog-reason'), 'more work');
  await page.click(named('dialog-confirm'));
  await shows(page, named('dialog-result'), /12/);
});

test('locks are found by their prefix, page after page', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  ['a/1', 'a/2', 'b/1'].forEach((key) => server.lock(key));
  await shows(page, '[data-live="held"]', /^3$/);
  await page.goto(`${server.console}#/namespace?namespace=default`);
  await page.waitForSelector(`${named('locks')} tr[data-key="b/1"]`);
  await page.fill(named('prefix'), 'a/');
  await page.keyboard.press('Enter');
  await page.waitForFunction((table) => document.querySelectorAll(`${table} tbody tr`).length === 2, named('locks'));
});

test('an identity sees what it may see, and may do what its rights allow', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'waymaker-access-'));
  const access = join(directory, 'access.toml');
  writeFileSync(
    access,
    '[[rule]]\nidentity = "viewer"\nallow = ["metrics", "list", "inspect", "acquire"]\n',
  );
  const tokens = join(directory, 'tokens');
  mkdirSync(tokens);
  const file = join(tokens, 'viewer.toml');
  const token = String(execFileSync(process.env.CTL, ['tokens', 'create', 'viewer', '--file', file])).trim();
  const server = await started(t, `--access=${access}`, `--tokens=${tokens}`);
  server.lock('jobs/nightly', token);
  // The browser logs a refused request as an error.
  const page = await open(t, server, /status of 40[13]/);
  await page.fill(named('token'), 'wrong');
  await page.click(named('token-use'));
  await page.waitForSelector(`${named('token-error')}:visible`);
  await page.fill(named('token'), token);
  await page.click(named('token-use'));
  await shows(page, named('identity'), /viewer/);
  await shows(page, '[data-live="held"]', /^1$/);
  assert.equal(await page.evaluate(() => localStorage.length), 0, 'the token is kept for the session only');
  await openKey(page, 'jobs/nightly');
  const release = `${named('holders')} ${named('force-release')}`;
  await page.waitForSelector(release);
  assert.equal(await page.getAttribute(release, 'aria-disabled'), 'true');
});

test('the page says that its data is old when the server ends', async (t) => {
  const server = await started(t);
  const page = await open(t, server, /net::ERR_/);
  await shows(page, '[data-live="held"]', /^0$/);
  server.end();
  await page.waitForSelector(`${named('stale')}:visible`);
});

test('every view is accessible and fits, light and dark, wide and narrow', async (t) => {
  const server = await started(t);
  const page = await open(t, server);
  await contended(t, page, server);
  const views = [
    '#/',
    '#/contention',
    '#/waiters',
    '#/namespaces',
    '#/namespace?namespace=default',
    '#/namespace?namespace=default&tab=waiting',
    '#/namespace?namespace=default&tab=frozen',
    '#/key?namespace=default&key=jobs/nightly',
  ];
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const width of [1600, 390]) {
      await page.setViewportSize({ width, height: 900 });
      for (const view of views) {
        await page.goto(server.console + view);
        await page.waitForSelector('main h1');
        await page.waitForTimeout(300);
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() =>
          axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }),
        );
        const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(' ')).join(', ')}`);
        assert.deepEqual(found, [], `${view}, ${colorScheme}, ${width} pixels wide`);
        const excess = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
        assert.ok(excess <= 0, `${view} is ${excess} pixels too wide for ${width}`);
        if (process.env.WAYMAKER_SCREENSHOTS) await screenshot(page, view, colorScheme, width);
      }
    }
  }
});

/** Writes a screenshot for the documents. */
async function screenshot(page, view, colorScheme, width) {
  const name = view.match(/tab=(\w+)/)?.[1] ?? (view.match(/\w+/)?.[0] || 'overview');
  const size = width < 800 ? 'narrow' : 'wide';
  await page.waitForTimeout(1500);
  await page.screenshot({ path: join(process.env.WAYMAKER_SCREENSHOTS, `console-${name}-${colorScheme}-${size}.png`) });
}
