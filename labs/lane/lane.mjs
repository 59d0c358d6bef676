// A server whose requests pass one by one: each waits for the one before it, on a chain of
// promises, and then for 20 ms. With --spread each waits for its own 20 ms only.
import fs from 'node:fs';
import http from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';

const STEP_MS = 20;
const spread = process.argv.includes('--spread');
let last = Promise.resolve();

async function throttle() {
  await pause(STEP_MS);
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
