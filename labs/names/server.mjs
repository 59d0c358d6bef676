// A server that blocks its event loop, in a function of its own for each way in which node can be
// blocked, by the client's number. Each answer says which function it was, and from when until
// when.
import { execFileSync } from 'node:child_process';
import { scryptSync } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';

// What each takes, in milliseconds.
const LONG = 14;
// The client is a thousandth of its request's number.
const REQUESTS_PER_CLIENT = 1000;

const word = new Int32Array(new SharedArrayBuffer(4));
const document = JSON.stringify(Array.from({ length: 2000 }, (_, n) => ({ n, text: `row ${n}` })));
const numbers = Array.from({ length: 3000 }, (_, n) => Math.imul(n, 2654435761));
const zeros = fs.openSync('/dev/zero');
const buffer = Buffer.alloc(1 << 20);

// Each says from when until when it was in itself.
const clock = process.hrtime.bigint;

// The compiler optimises it: it loops.
function computing(end) {
  const begun = clock();
  let mixed = 1;
  while (performance.now() < end) {
    for (let i = 0; i < 10000; i++) mixed = Math.imul(mixed, 31) + i;
  }
  return [begun, clock(), mixed];
}

// A new one for each request: nothing is compiled when it begins. They stay, as those of a program.
const made = [];
function newInterpreting(number) {
  const text = `
    return function interpreting(end) {
      const begun = clock();
      let mixed = ${number};
      while (performance.now() < end) mixed = (mixed * 31 + 7) % 1000003;
      return [begun, clock(), mixed];
    };`;
  made.push(new Function('clock', text)(clock));
  return made.at(-1);
}

function sleeping(end) {
  const begun = clock();
  Atomics.wait(word, 0, 0, end - performance.now());
  return [begun, clock()];
}

// Starts a program and waits for it.
function running() {
  const begun = clock();
  execFileSync('sleep', [`${LONG / 1e3}`], { stdio: 'ignore' });
  return [begun, clock()];
}

function hashing(end) {
  const begun = clock();
  while (performance.now() < end) scryptSync('secret', 'salt', 32, { N: 1024 });
  return [begun, clock()];
}

function parsing(end) {
  const begun = clock();
  while (performance.now() < end) JSON.parse(document);
  return [begun, clock()];
}

function sorting(end) {
  const begun = clock();
  while (performance.now() < end) numbers.slice().sort();
  return [begun, clock()];
}

// An expression that tries each way to take the letters apart.
function matching(end) {
  const begun = clock();
  while (performance.now() < end) /^(a+)+$/.test('aaaaaaaaaaaaaaaaab');
  return [begun, clock()];
}

function reading(end) {
  const begun = clock();
  while (performance.now() < end) fs.readSync(zeros, buffer, 0, buffer.length, null);
  return [begun, clock()];
}

const ways = [
  computing, newInterpreting, sleeping, running, hashing, parsing, sorting, matching, reading,
];

const server = http.createServer((request, response) => {
  const read = clock();
  const number = Number(request.url.slice(1));
  const way = ways[Math.floor(number / REQUESTS_PER_CLIENT) % ways.length];
  const run = way === newInterpreting ? newInterpreting(number) : way;
  const [begun, ended] = run(performance.now() + LONG);
  const body = JSON.stringify({
    read: Number(read) / 1e6,
    begun: Number(begun) / 1e6,
    ended: Number(ended) / 1e6,
    ran: [[process.pid, run.name, Number(begun), Number(ended)]],
  });
  response.writeHead(200, { 'content-length': Buffer.byteLength(body) });
  response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
