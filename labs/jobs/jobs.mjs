// A node server that hands each request's job to others: helper processes, or libuv's threads.
//
//   node jobs.mjs helper N        to N processes, over node's channel to its children
//   node jobs.mjs names           to libuv's pool, which looks up names: two of its four threads do
//   node jobs.mjs compute MS [N]  to N worker threads (1), which compute for so long
//
// Of four clients three ask for a report, which takes 60 ms of sleep, or for a slow name. The
// fourth one asks for a thumbnail, or for a quick name. Where jobs compute, all do the same.
import { fork } from 'node:child_process';
import dns from 'node:dns';
import fs from 'node:fs';
import http from 'node:http';
import { Worker, isMainThread, parentPort } from 'node:worker_threads';

const [what, count, threads = '1'] = process.argv.slice(2);

function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

// The number is 1000 * C + R, for round R of client C.
function isQuick(number) {
  return Math.floor(number / 1000) % 4 === 3;
}

function renderReport() {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 60);
}

function makeThumbnail() {
  let sum = 0;
  for (let at = 0; at < 1000; at++) sum += at;
  return sum;
}

// The helper.
function serveJobs() {
  process.on('message', ({ id, number }) => {
    const begun = nowMs();
    if (isQuick(number)) makeThumbnail();
    else renderReport();
    process.send({ id, begun, ended: nowMs() });
  });
  process.on('disconnect', () => process.exit(0));
}

// Each has its jobs in turn: what is sent waits in its channel.
class Helpers {
  constructor(helpers) {
    this.waiting = new Map();
    this.next = 0;
    this.children = Array.from({ length: helpers }, () => fork(process.argv[1], ['serve']));
    for (const child of this.children) {
      child.on('message', ({ id, begun, ended }) => {
        this.waiting.get(id)({ begun, ended });
        this.waiting.delete(id);
      });
      child.on('exit', () => process.exit(1));
    }
  }

  submit(number) {
    const id = this.next++;
    this.children[id % this.children.length].send({ id, number });
    return new Promise((done) => this.waiting.set(id, done));
  }
}

function compressArchive(ms) {
  const until = nowMs() + ms;
  let sum = 0;
  while (nowMs() < until) for (let at = 0; at < 1000; at++) sum += Math.sqrt(at);
  return sum;
}

// In the worker thread: its jobs in turn.
function computeJobs() {
  parentPort.on('message', ({ id }) => {
    const begun = nowMs();
    compressArchive(Number(count));
    parentPort.postMessage({ id, begun, ended: nowMs() });
  });
}

// The one with the fewest jobs has the next.
class ComputingThreads {
  constructor() {
    this.waiting = new Map();
    this.next = 0;
    this.threads = Array.from({ length: Number(threads) }, () => this.start());
  }

  start() {
    const thread = new Worker(process.argv[1], { argv: ['compute', count] });
    const one = { thread, jobs: 0 };
    thread.on('message', ({ id, begun, ended }) => {
      one.jobs--;
      this.waiting.get(id)({ begun, ended });
      this.waiting.delete(id);
    });
    return one;
  }

  submit() {
    const id = this.next++;
    const free = this.threads.reduce((least, one) => (one.jobs < least.jobs ? one : least));
    free.jobs++;
    free.thread.postMessage({ id });
    return new Promise((done) => this.waiting.set(id, done));
  }
}

function whoDoesJobs() {
  if (what === 'helper') return new Helpers(Number(count));
  return what === 'compute' ? new ComputingThreads() : null;
}

function lookUp(number) {
  const begun = nowMs();
  const name = `${isQuick(number) ? 'quick' : 'slow'}-${number}.lab`;
  return new Promise((done) => {
    dns.lookup(name, 4, (error) => {
      if (error) throw error;
      // When a thread began with it is not known here.
      done({ begun, ended: nowMs() });
    });
  });
}

if (!isMainThread) {
  computeJobs();
} else if (what === 'serve') {
  serveJobs();
} else {
  const helpers = whoDoesJobs();
  const server = http.createServer(async (request, response) => {
    const read = nowMs();
    const number = Number(request.url.slice(1));
    const { begun, ended } = await (helpers ? helpers.submit(number) : lookUp(number));
    const body = JSON.stringify({ read, begun, ended });
    response.writeHead(200, { 'Content-Length': body.length });
    response.end(body);
  });
  server.listen(0, '127.0.0.1', () => {
    const ready = `${process.pid} 127.0.0.1:${server.address().port}\n`;
    fs.writeFileSync(process.env.READY_FILE, ready);
  });
}
