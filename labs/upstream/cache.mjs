// The same on node: a server with a cache, whose lock is held while a value is fetched.
//
//   node cache.mjs UPSTREAM [--each]
//
// See cache.py.
import fs from 'node:fs';
import http from 'node:http';
import { parseArgs } from 'node:util';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { each: { type: 'boolean', default: false } },
});
const upstream = `http://${positionals[0]}`;
const agent = new http.Agent({ keepAlive: true });

// The clock that all processes of a machine share.
function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

function fetchUser(user, calls) {
  const begun = nowMs();
  return new Promise((resolve) => {
    const request = http.get(`${upstream}/${user}`, { agent }, (reply) => {
      let body = '';
      reply.on('data', (piece) => { body += piece; });
      reply.on('end', () => {
        calls.push([begun, nowMs()]);
        resolve(body);
      });
    });
    request.on('error', () => process.exit(1));
  });
}

// By user, or one for all: what the last of those who have it or wait for it does.
const locks = new Map();
const users = new Map(Array.from({ length: 8 }, (_, n) => [2 * n + 1, 'upstream']));

async function lookUp(user, calls) {
  if (users.has(user)) {
    users.delete(user);
    return;
  }
  users.set(user, await fetchUser(user, calls));
}

function getUser(user, calls) {
  const lock = values.each ? user : undefined;
  const before = locks.get(lock) ?? Promise.resolve();
  const mine = before.then(() => lookUp(user, calls));
  locks.set(lock, mine);
  return mine;
}

async function serve(request, response) {
  const read = nowMs();
  const calls = [];
  await getUser(Math.floor(Number(request.url.slice(1)) / 1000), calls);
  const ended = nowMs();
  const body = JSON.stringify({ read, begun: calls[0]?.[0] ?? ended, ended, calls });
  response.writeHead(200, { 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

const server = http.createServer(serve);
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
