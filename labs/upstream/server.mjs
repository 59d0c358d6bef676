// A server that asks another service for each request and answers with what became of it when.
//
//   node server.mjs UPSTREAM [--pool N] [--held] [--warm N] [--calls N] [--work-ms N] [--forward]
//
// The options are those of the other servers.
import fs from 'node:fs';
import http from 'node:http';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    pool: { type: 'string', default: '0' },
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

async function serve(request, response) {
  const read = nowMs();
  const path = values.forward ? request.url : undefined;
  const calls = [];
  for (let n = 0; n < Number(values.calls); n += 1) {
    calls.push(await (values.held ? fetchWithLock(path) : fetchReport(path)));
  }
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
