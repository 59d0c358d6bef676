// A server whose requests pass one by one: each waits for the one before it, on a chain of
// promises, and then for 20 ms. With --spread each waits for its own 20 ms only. With --unequal it
// is 5 to 35 ms.
import fs from 'node:fs';
import http from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const STEP_MS = 20;
const spread = process.argv.includes('--spread');
const unequal = process.argv.includes('--unequal');
let last = Promise.resolve();
let random = 1;

function length() {
  if (!unequal) return STEP_MS;
  random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
  return 5 + ((random >>> 16) % 7) * 5;
}

async function throttle() {
  await pause(length());
}

function book() {
  if (spread) return throttle();
  last = last.then(throttle);
  return last;
}

const server = http.createServer(async (request, response) => {
  await book();
  response.end('booked');
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
