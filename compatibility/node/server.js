// A server process on free ports.
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Starts a server; `http` is its HTTP address, `close` ends it. */
export async function start() {
  const listen = ['listen', 'grpc-listen', 'http-listen'].map((name) => `--${name}=127.0.0.1:0`);
  const child = spawn(process.env.WAYMAKER_SERVER, [...listen, '--data-dir=none'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    const http = line.match(/^ready .*\bhttp=(\S+)/)?.[1];
    if (http) return { http, close: () => child.kill('SIGKILL') };
  }
  throw new Error('the server ended before it was ready');
}
