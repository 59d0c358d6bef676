// The same server on node.
//
//   node sessions.mjs transaction|session|mixed|apart DATABASE --pool N
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

const [what, database, , size] = process.argv.slice(2);
const port = Number(database.split(':')[1]);
const THOUGHT_MS = 20;
const CALL = 'GET /call HTTP/1.1\r\nHost: peer\r\n\r\n';

function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

function connect(host) {
  return new Promise((resolve) => {
    const socket = net.connect({ host, port, noDelay: true }, () => resolve(socket));
    socket.on('error', () => process.exit(1));
  });
}

function ask(socket) {
  return new Promise((resolve) => {
    socket.once('data', resolve);
    socket.write(CALL);
  });
}

class Pool {
  constructor(sockets) {
    this.free = sockets;
    this.waiting = [];
  }

  async take() {
    return this.free.pop() ?? new Promise((resolve) => this.waiting.push(resolve));
  }

  give(socket) {
    const next = this.waiting.shift();
    if (next) next(socket);
    else this.free.push(socket);
  }
}

const sockets = [];
for (let at = 0; at < Number(size); at++) sockets.push(await connect('127.0.0.1'));
const pool = new Pool(sockets);

async function callService(service, calls) {
  const begun = nowMs();
  await ask(service);
  calls.push([begun, nowMs()]);
}

async function transaction(service, calls) {
  const connection = await pool.take();
  const begun = nowMs();
  await ask(connection);
  await pause(THOUGHT_MS);
  await ask(connection);
  await ask(connection);
  pool.give(connection);
  await callService(service, calls);
  return begun;
}

async function session(service, calls) {
  const connection = await pool.take();
  const begun = nowMs();
  await ask(connection);
  await callService(service, calls);
  await ask(connection);
  pool.give(connection);
  return begun;
}

async function query() {
  const connection = await pool.take();
  const begun = nowMs();
  await ask(connection);
  pool.give(connection);
  return begun;
}

async function apart(service, calls) {
  const begun = await query();
  await callService(service, calls);
  await query();
  return begun;
}

// The path is 1000 * client + round.
function workOf(request) {
  const client = Math.floor(Number(request.url.slice(1)) / 1000);
  if (what === 'transaction' || what === 'session') return { transaction, session }[what];
  if (client % 2) return query;
  return what === 'apart' ? apart : session;
}

const services = new WeakMap();
const server = http.createServer(async (request, response) => {
  const read = nowMs();
  const calls = [];
  // Each client's connection has one to the other service of its own.
  if (!services.has(request.socket)) services.set(request.socket, await connect('127.0.0.2'));
  const begun = await workOf(request)(services.get(request.socket), calls);
  const body = JSON.stringify({ read, begun, ended: nowMs(), calls });
  response.writeHead(200, { 'Content-Length': body.length });
  response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
