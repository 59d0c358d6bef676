'use strict';
// A node HTTP server whose handler burns CPU for 200 ms, or with --short sleeps for 6 ms. With
// --worker a worker thread does it instead. While the main thread does it, its event loop serves
// nobody. See lab.toml for the variants.

const fs = require('node:fs');
const http = require('node:http');
const { Worker, isMainThread, parentPort } = require('node:worker_threads');

const RENDER_MS = 200;
const SHORT_MS = 6;
// As many as the load has connections: no request of the fixed variant waits for a worker.
const WORKERS = 4;

// Until a fixed wall time is over: the promise shall not depend on the machine's speed.
function renderReport() {
  const end = performance.now() + RENDER_MS;
  let digest = 1;
  while (performance.now() < end) {
    for (let i = 0; i < 10000; i++) digest = Math.imul(digest, 1103515245) + 12345;
  }
  return digest;
}

// Waits synchronously, as an addon does that asks somebody.
function askSynchronously() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, SHORT_MS);
}

const work = process.argv.includes('--short') ? askSynchronously : renderReport;

// Each worker has one job at a time; the next free one takes the next job.
class Pool {
  #idle = [];
  #waiting = [];

  constructor(size) {
    for (let i = 0; i < size; i++) {
      this.#idle.push(new Worker(__filename, { argv: process.argv.slice(2) }));
    }
  }

  run() {
    return new Promise((resolve) => {
      const worker = this.#idle.pop();
      if (worker) this.#start(worker, resolve);
      else this.#waiting.push(resolve);
    });
  }

  #start(worker, resolve) {
    worker.once('message', () => {
      resolve();
      const next = this.#waiting.shift();
      if (next) this.#start(worker, next);
      else this.#idle.push(worker);
    });
    worker.postMessage('render');
  }
}

function answer(response, body) {
  response.writeHead(200, { 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
}

function main() {
  const pool = process.argv.includes('--worker') ? new Pool(WORKERS) : null;
  const server = http.createServer(async (request, response) => {
    if (request.url !== '/report') return answer(response, 'healthy');
    if (pool) await pool.run();
    else work();
    answer(response, 'report');
  });
  server.listen(0, '127.0.0.1', () => {
    fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
  });
}

if (isMainThread) main();
else parentPort.on('message', () => parentPort.postMessage(work()));
