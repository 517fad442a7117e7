// A server on free ports, and clients of it that hold and wait for locks.
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const children = new Set();
process.on('exit', () => children.forEach((child) => child.kill('SIGKILL')));

function run(program, parameters, options) {
  const child = spawn(program, parameters, options);
  children.add(child);
  child.on('exit', () => children.delete(child));
  return child;
}

/** Starts a server. `console` is the address of its console, `end` ends it. */
export async function start(...more) {
  const listen = ['listen', 'grpc-listen', 'http-listen'].map((name) => `--${name}=127.0.0.1:0`);
  const directory = mkdtempSync(join(tmpdir(), 'waymaker-page-'));
  const child = run(process.env.WAYMAKER_SERVER, [...listen, `--data-dir=${directory}/data`, ...more], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const address = (name) => line.match(new RegExp(`^ready .*\\b${name}=(\\S+)`))?.[1];
    if (!address('http')) continue;
    const clients = new Set();
    const url = `waymaker://${address('binary')}`;
    const client = (program, parameters, variables) => {
      const running = run(program, parameters, { env: { ...process.env, ...variables }, stdio: 'ignore' });
      clients.add(running);
      return running;
    };
    const ctl = (token, ...parameters) => client(process.env.CTL, parameters, { WAYMAKER_SERVER: url, WAYMAKER_TOKEN: token });
    return {
      console: `http://${address('http')}/console`,
      pid: child.pid,
      /** Holds a lock, or waits for it, until the returned process ends. */
      lock: (key, token = '') => ctl(token, 'lock', key, '--', 'sleep', '600'),
      /** Holds a permit of a pool. */
      permit: (pool) => ctl('', 'semaphore', '--capacity', '2', pool, '--', 'sleep', '600'),
      /** Runs a workload until the returned process ends. */
      load: (...parameters) => client(process.env.LOADGEN, ['--target', url, ...parameters]),
      end() {
        clients.forEach((running) => running.kill('SIGKILL'));
        child.kill('SIGKILL');
      },
    };
  }
  throw new Error('the server ended before it was ready');
}
