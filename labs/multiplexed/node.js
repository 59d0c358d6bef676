// A server whose handler waits for a timer, and clients of it that have several requests at once on
// one connection, or one:
//
//   node.js PROTOCOL                  the server, on a port of the system's choice
//   node.js PROTOCOL load ADDRESS     the clients
//   node.js gateway HOW PEER          answers HTTP/1, and asks a server in HTTP/2
//   node.js gateway-tls HOW PEER      … in TLS
//
// PROTOCOL: h2c (HTTP/2 in clear text), h2 (in TLS) or http1. One request in ten takes 300 ms, the
// others 10 ms. …-blocked, …-spread: fewer clients, and the slow requests compute for 100 ms, all
// at once or a millisecond a turn.
'use strict';

const { execFileSync } = require('child_process');
const fs = require('fs');
const http = require('http');
const http2 = require('http2');
const os = require('os');
const { join } = require('path');

const CONNECTIONS = 4, STREAMS = 8, SINGLE = 8, SLOW_MS = 300, QUICK_MS = 10, LASTS_MS = 2000;
const COMPUTES_MS = 100, ROW = 12, LONG = 512 << 10;

function computeReport(ms) {
  const end = performance.now() + ms;
  let sum = 0;
  while (performance.now() < end) sum += Math.sqrt(sum + 1);
  return sum;
}

function computeBitByBit(ms, done) {
  computeReport(1);
  if (ms > 1) setTimeout(computeBitByBit, 1, ms - 1, done);
  else done();
}

function work(protocol, slow, done) {
  if (!slow) setTimeout(done, QUICK_MS);
  else if (protocol.endsWith('-blocked')) done(computeReport(COMPUTES_MS));
  else if (protocol.endsWith('-spread')) computeBitByBit(COMPUTES_MS, done);
  else setTimeout(done, SLOW_MS);
}

function serve(protocol) {
  const answer = (request, response) => {
    request.resume();
    request.on('end', () => {
      if (request.url === '/long') return response.end(Buffer.alloc(LONG));
      work(protocol, request.url === '/slow', () => response.end('done\n'));
    });
  };
  const server =
    protocol === 'http1' ? http.createServer(answer) :
      inTls(protocol) ? http2.createSecureServer(certificate(), answer) :
        http2.createServer(answer);
  server.listen(0, '127.0.0.1', () => {
    const address = `127.0.0.1:${server.address().port}`;
    fs.writeFileSync(process.env.READY_FILE, `${process.pid} ${address}\n`);
  });
}

function inTls(protocol) {
  return protocol.startsWith('h2') && !protocol.startsWith('h2c');
}

function certificate() {
  const folder = fs.mkdtempSync(join(os.tmpdir(), 'certificate-'));
  const [key, cert] = ['key', 'cert'].map((name) => join(folder, name));
  const made = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const args = ['req', '-x509', ...made, '-keyout', key, '-out', cert, '-subj', '/CN=lab'];
  execFileSync('openssl', args, { stdio: 'ignore' });
  const pair = { key: fs.readFileSync(key), cert: fs.readFileSync(cert) };
  fs.rmSync(folder, { recursive: true });
  return pair;
}

function connect(address, tls) {
  return http2.connect(`${tls ? 'https' : 'http'}://${address}`, { rejectUnauthorized: false });
}

function askHttp2(session, path) {
  return new Promise((resolve, reject) => {
    const stream = session.request({ ':path': path });
    stream.on('error', reject);
    stream.on('end', resolve);
    stream.resume();
    stream.end();
  });
}

function askHttp1(address, agent, path) {
  return new Promise((resolve, reject) => {
    const request = http.get(`http://${address}${path}`, { agent }, (response) => {
      response.on('end', resolve);
      response.resume();
    });
    request.on('error', reject);
  });
}

async function load(protocol, address) {
  const took = [];
  const sessions = [];
  const end = performance.now() + LASTS_MS;
  const asks = async (number, ask) => {
    for (let sent = 0; performance.now() < end; sent++) {
      const begun = performance.now();
      await ask((sent + number) % 10 === 0 ? '/slow' : '/quick');
      took.push(performance.now() - begun);
    }
  };
  const all = [];
  const askers = { 'http1': SINGLE, 'h2c': CONNECTIONS * STREAMS }[protocol] || 4;
  const streams = protocol === 'h2c' ? STREAMS : 2;
  for (let number = 0; number < askers; number++) {
    if (protocol !== 'http1') {
      if (number % streams === 0) sessions.push(connect(address, inTls(protocol)));
      const session = sessions[sessions.length - 1];
      all.push(asks(number, (path) => askHttp2(session, path)));
    } else {
      const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
      all.push(asks(number, (path) => askHttp1(address, agent, path)));
    }
  }
  await Promise.all(all);
  took.sort((a, b) => a - b);
  const at = (share) => Math.round(took[Math.floor((took.length - 1) * share)] * 10) / 10;
  const truth = {
    requests: took.length, slow: took.filter((ms) => ms >= COMPUTES_MS).length,
    p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1),
    load: { count: took.length, sum_ms: took.reduce((sum, ms) => sum + ms, 0) },
  };
  console.error(`ground-truth: ${JSON.stringify(truth)}`);
  process.exit(0);
}

// The clock that all processes of a machine share.
function nowMs() {
  return Number(process.hrtime.bigint()) / 1e6;
}

// HOW: as in grpc-go/gateway.go.
function gateway(how, peer, tls) {
  const session = connect(peer, tls);
  const places = [];
  let requests = 0, inUse = 0;
  const call = async (calls) => {
    const begun = nowMs();
    await askHttp2(session, '/quick');
    calls.push([begun, nowMs()]);
  };
  const work = async (calls, many) => {
    if (how === 'rows' && many) {
      for (let n = 0; n < ROW; n++) await call(calls);
    } else if (how === 'at-once' && many) {
      await Promise.all(Array.from({ length: ROW }, () => call(calls)));
    } else {
      await call(calls);
    }
  };
  const server = http.createServer(async (request, response) => {
    const read = nowMs(), many = ++requests % 3 === 0, calls = [];
    request.resume();
    if (how === 'limit' && inUse === 2) await new Promise((resolve) => places.push(resolve));
    else inUse++;
    const begun = nowMs();
    await work(calls, many);
    const ended = nowMs();
    if (places.length) places.shift()();
    else inUse--;
    response.end(JSON.stringify({ read, begun, ended, calls }));
  });
  server.listen(0, '127.0.0.1', () => {
    const address = `127.0.0.1:${server.address().port}`;
    fs.writeFileSync(process.env.READY_FILE, `${process.pid} ${address}\n`);
  });
}

const [protocol, what, address] = process.argv.slice(2);
if (protocol.startsWith('gateway')) gateway(what, address, protocol === 'gateway-tls');
else if (what === 'load') load(protocol, address);
else serve(protocol);
