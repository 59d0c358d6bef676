// A node server that fetches a price list for its requests: while one fetch is under way, all who
// come wait for that.
//
//   node fetches.mjs UPSTREAM
import fs from 'node:fs';
import http from 'node:http';

const [host, port] = process.argv[2].split(':');
const agent = new http.Agent({ keepAlive: true });
let underWay = null;

function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

function fetchPrices() {
  const begun = nowMs();
  return new Promise((done, failed) => {
    const call = http.get({ host, port, agent, path: '/' }, (answer) => {
      answer.resume();
      answer.on('end', () => done({ begun, ended: nowMs() }));
    });
    call.on('error', failed);
  });
}

function prices() {
  underWay ??= fetchPrices().finally(() => {
    underWay = null;
  });
  return underWay;
}

const server = http.createServer(async (request, response) => {
  const read = nowMs();
  const { begun, ended } = await prices();
  response.end(JSON.stringify({ read, begun, ended }));
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
