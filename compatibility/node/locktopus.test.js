// Tests with the real client of Locktopus: all cases of its own tests, and some for errors.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { CLIENT_STATE, LOCK_TYPE, LocktopusClient } from '@locktopus/client';
import { WebSocket } from 'ws';
import { start } from './server.js';

/** How long a test waits for an event before the event counts as missing. No other verdict depends on it. */
const WATCHDOG_MS = 60_000;

let server;
let namespace = 0;
let clients = [];

before(async () => {
  server = await soon(start());
});

after(() => server.close());

beforeEach(() => {
  namespace += 1;
});

afterEach(() => {
  for (const client of clients) client.close();
  clients = [];
});

/** A connected client in the test's own namespace. */
async function connect(options = '') {
  const client = new LocktopusClient(WebSocket, `ws://${server.http}/v1?namespace=${namespace}${options}`);
  await soon(client.connect());
  clients.push(client);
  return client;
}

const write = (...path) => ({ type: LOCK_TYPE.WRITE, path });
const read = (...path) => ({ type: LOCK_TYPE.READ, path });

/** The result of a promise. The test fails if the watchdog ends first. */
async function soon(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`missing after ${WATCHDOG_MS} ms`)), WATCHDOG_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

test('connects to a URL in a string', async () => {
  assert.equal((await connect('&abandon-timeout-ms=1000')).getState(), CLIENT_STATE.READY);
});

test('connects with separate parameters', async () => {
  const [host, port] = server.http.split(':');
  const parameters = { host, port: Number(port), namespace: `${namespace}`, secure: false, abandonTimeoutMs: 1000 };
  const client = new LocktopusClient(WebSocket, parameters);
  await soon(client.connect());
  clients.push(client);
  assert.equal(client.getState(), CLIENT_STATE.READY);
});

test('does not connect without a namespace', async () => {
  const client = new LocktopusClient(WebSocket, `ws://${server.http}/v1`);
  await assert.rejects(client.connect(), /400/);
});

test('the first lock is acquired at once and has an id', async () => {
  const client = await connect();
  assert.equal(await client.lock(write('a', 'b')), true);
  assert.equal(client.isAcquired(), true);
  assert.equal(client.getLockId(), '1');
});

test('a held path is acquired after its release', async () => {
  const [first, second] = [await connect(), await connect()];
  assert.equal(await first.lock(write('a', 'b')), true);
  assert.equal(await second.lock(write('a', 'b')), false);
  assert.equal(second.getState(), CLIENT_STATE.ENQUEUED);
  const acquired = second.acquire();
  await first.release();
  assert.equal(await soon(acquired), true);
  assert.equal(second.getState(), CLIENT_STATE.ACQUIRED);
});

test('a waiter may call acquire after the grant arrived', async () => {
  const [first, second, third] = [await connect(), await connect(), await connect()];
  await first.lock(write('a'));
  await second.lock(write('a'));
  await first.release();
  assert.equal(await third.lock(read('a')), false);
  assert.equal(await soon(second.acquire()), true);
});

test('readers share, and a writer waits for them', async () => {
  const [first, second, writer] = [await connect(), await connect(), await connect()];
  assert.equal(await first.lock(read('a')), true);
  assert.equal(await second.lock(read('a', 'b')), true);
  assert.equal(await writer.lock(write('a')), false);
  await first.release();
  const acquired = writer.acquire();
  await second.release();
  assert.equal(await soon(acquired), true);
});

test('a release before the lock was acquired', async () => {
  const [first, second] = [await connect(), await connect()];
  await first.lock(write('a'));
  assert.equal(await second.lock(write('a')), false);
  await soon(second.release());
  assert.equal(second.getState(), CLIENT_STATE.READY);
  await first.release();
  assert.equal(await second.lock(write('a')), true);
});

test('a release while acquire waits for the whole namespace', async () => {
  const [first, second] = [await connect(), await connect()];
  await first.lock(write());
  assert.equal(await second.lock(write()), false);
  const acquired = second.acquire();
  await soon(second.release());
  assert.equal(await soon(acquired), false);
  assert.equal(second.getState(), CLIENT_STATE.READY);
});

test('a release that crosses the grant', async () => {
  const [first, second] = [await connect(), await connect()];
  for (let round = 0; round < 50; round += 1) {
    assert.equal(await first.lock(write('a')), true);
    assert.equal(await second.lock(write('a')), false);
    await soon(Promise.all([first.release(), second.release()]));
  }
});

test('a client locks many times over one connection', async () => {
  const client = await connect();
  for (let id = 1; id <= 100; id += 1) {
    assert.equal(await client.lock(write('a'), read('b', 'c')), true);
    assert.equal(client.getLockId(), `${id}`);
    await client.release();
  }
});

test('the client reports the end of the connection when it closes', async () => {
  const client = await connect();
  const closed = new Promise((resolve) => client.onConnectionClose(resolve));
  await client.lock(write('a'));
  client.close();
  const event = await soon(closed);
  assert.deepEqual([event.code, event.wasClean], [1000, true]);
});

test('a lock and its release are exactly four messages', async () => {
  const client = await connect();
  const messages = [];
  client.onMessage(({ direction, data }) => messages.push([direction, JSON.parse(data)]));
  await client.lock(write('a'));
  await client.release();
  assert.deepEqual(messages, [
    ['out', { action: 'lock', resources: [{ type: 'write', path: ['a'] }] }],
    ['in', { id: '1', action: 'lock', state: 'acquired' }],
    ['out', { action: 'release' }],
    ['in', { id: '1', action: 'release', state: 'ready' }],
  ]);
});

test('a lock is free after the abandon timeout of a client that closed', async () => {
  const [first, second] = [await connect('&abandon-timeout-ms=200'), await connect()];
  await first.lock(write('a'));
  assert.equal(await second.lock(write('a')), false);
  const closedMs = performance.now();
  first.close();
  assert.equal(await soon(second.acquire()), true);
  assert.ok(performance.now() - closedMs >= 180);
});

test('an error has a text and a close code, and no client waits for ever', async () => {
  const socket = new WebSocket(`ws://${server.http}/v1?namespace=${namespace}`);
  await soon(once(socket, 'open'));
  socket.send('{"action":"release"}');
  const [[text], [code]] = await soon(Promise.all([once(socket, 'message'), once(socket, 'close')]));
  assert.equal(`${text}`.trimEnd(), 'communication error: invalid action [release] in state [ready]');
  assert.equal(code, 3000);
});

test('clients before 1.1.3 write Resources with a capital letter', async () => {
  const socket = new WebSocket(`ws://${server.http}/v1?namespace=${namespace}`);
  await soon(once(socket, 'open'));
  socket.send(JSON.stringify({ action: 'lock', Resources: [write('a')] }));
  const [text] = await soon(once(socket, 'message'));
  assert.deepEqual(JSON.parse(text), { id: '1', action: 'lock', state: 'acquired' });
  const client = await connect();
  assert.equal(await client.lock(read('a')), false);
  socket.close();
});
