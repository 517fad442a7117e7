import { LOCK_TYPE, LocktopusClient } from '@locktopus/client';
import { WebSocket } from 'ws';

const address = process.argv[2] ?? '127.0.0.1:7422';
const client = new LocktopusClient(WebSocket, `ws://${address}/v1?namespace=shop`);
await client.connect();

const order = { type: LOCK_TYPE.WRITE, path: ['orders', '17'] };
const customers = { type: LOCK_TYPE.READ, path: ['customers'] };
if (!(await client.lock(order, customers))) {
  console.log('held by another client: waiting');
  await client.acquire();
}
console.log(`acquired as lock ${client.getLockId()}`);
// ... the work ...
await client.release();
console.log('released');
client.close();
