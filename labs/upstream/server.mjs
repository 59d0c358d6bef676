// A server that asks another service for each request and answers with what became of it when.
//
//   node server.mjs UPSTREAM [--pool N [--keep-ms N]|--shared] [--held] [--warm N] [--calls N]
//        [--work-ms N] [--forward]
//
// The options are those of the other servers.
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    pool: { type: 'string', default: '0' },
    'keep-ms': { type: 'string', default: '0' },
    shared: { type: 'boolean', default: false },
    held: { type: 'boolean', default: false },
    warm: { type: 'string', default: '0' },
    calls: { type: 'string', default: '1' },
    'work-ms': { type: 'string', default: '0' },
    forward: { type: 'boolean', default: false },
  },
});
const upstream = `http://${positionals[0]}`;
const agent = new http.Agent({ keepAlive: true, maxSockets: Number(values.pool) || Infinity });

// The clock that all processes of a machine share.
function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

// The call, from when it has a connection until its reply is read.
function fetchReport(path = '/report') {
  return new Promise((resolve) => {
    let begun;
    const request = http.get(upstream + path, { agent }, (reply) => {
      let body = '';
      reply.on('data', (piece) => { body += piece; });
      reply.on('end', () => resolve([begun, nowMs(), ...(values.forward ? [Number(body)] : [])]));
    });
    request.on('socket', (socket) => {
      begun = nowMs();
      // A new one has to be connected first.
      if (socket.connecting) {
        socket.once('connect', () => {
          begun = nowMs();
        });
      }
    });
    request.on('error', () => process.exit(1));
  });
}

// A connection of which the calls need not wait for each other: replies come in their order.
class Connection {
  constructor() {
    const [host, port] = positionals[0].split(':');
    this.waiting = [];
    this.received = '';
    this.socket = net.connect(Number(port), host);
    this.socket.setNoDelay(true);
    this.socket.on('data', (piece) => this.take(String(piece)));
    this.socket.on('error', () => process.exit(1));
  }

  take(piece) {
    this.received += piece;
    for (;;) {
      const head = this.received.indexOf('\r\n\r\n') + 4;
      const length = /content-length: (\d+)/i.exec(this.received);
      if (head < 4 || this.received.length < head + Number(length[1])) return;
      this.received = this.received.slice(head + Number(length[1]));
      this.waiting.shift()();
    }
  }

  fetchReport() {
    const begun = nowMs();
    return new Promise((resolve) => {
      this.waiting.push(() => resolve([begun, nowMs()]));
      this.socket.write('GET /report HTTP/1.1\r\nHost: upstream\r\n\r\n');
    });
  }
}

// Connections that a request keeps for all of its calls, as for a transaction.
const keepMs = Number(values['keep-ms']);
const free = keepMs ? Array.from({ length: Number(values.pool) }, () => new Connection()) : [];
const queue = [];
const shared = values.shared ? new Connection() : undefined;

async function keepConnection() {
  const connection = free.pop() ?? await new Promise((resolve) => { queue.push(resolve); });
  const calls = [await connection.fetchReport()];
  while (calls.length < Number(values.calls)) {
    await pause(keepMs);
    calls.push(await connection.fetchReport());
  }
  if (queue.length) queue.shift()(connection);
  else free.push(connection);
  return calls;
}

let last = Promise.resolve();

// A lock of promises is held across the call.
function fetchWithLock(path) {
  const mine = last.then(() => fetchReport(path));
  last = mine;
  return mine;
}

function computeAnswer(milliseconds) {
  for (const end = nowMs() + milliseconds; nowMs() < end; );
}

function makeCall(path) {
  if (shared) return shared.fetchReport();
  return values.held ? fetchWithLock(path) : fetchReport(path);
}

async function makeCalls(path) {
  if (keepMs) return keepConnection();
  const calls = [];
  for (let n = 0; n < Number(values.calls); n += 1) {
    calls.push(await makeCall(path));
  }
  return calls;
}

async function serve(request, response) {
  const read = nowMs();
  const calls = await makeCalls(values.forward ? request.url : undefined);
  const work = nowMs();
  computeAnswer(Number(values['work-ms']));
  const more = values.forward ? { work, answered: nowMs() } : {};
  const said = { read, begun: calls[0][0], ended: calls.at(-1)[1], calls, ...more };
  const body = JSON.stringify(said);
  response.writeHead(200, { 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

await Promise.all(Array.from({ length: Number(values.warm) }, () => fetchReport()));
const server = http.createServer(serve);
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
