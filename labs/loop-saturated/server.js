'use strict';
// A node HTTP server whose handler parses a large document, for 40 ms of CPU time. With --cached it
// was parsed before, and the handler waits as long for a timer. With four clients and more there is
// always a next request: the loop's poll never waits. See lab.toml.

const fs = require('node:fs');
const http = require('node:http');
const { performance } = require('node:perf_hooks');
const { setTimeout: sleep } = require('node:timers/promises');

const PARSE_MS = 40;
const CATALOGUE = JSON.stringify(
  Array.from({ length: 5000 }, (_, i) => ({ id: i, name: `article ${i}`, price: i / 7 })));

// CPU time, so that the promise depends on no machine's speed, nor on what else has its CPUs.
function usedMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function parseCatalogue() {
  const end = usedMs() + PARSE_MS;
  let articles = 0;
  while (usedMs() < end) articles = JSON.parse(CATALOGUE).length;
  return articles;
}

let mark = null;

// How long the loop waited in its poll since the first request: node measures that.
function about() {
  const { idle, active } = performance.eventLoopUtilization(mark);
  return JSON.stringify({ waited_ms: idle, waited_share: idle / (idle + active) });
}

async function answer(path, cached) {
  if (path === '/about') return about();
  mark ??= performance.eventLoopUtilization();
  if (!cached) return `${parseCatalogue()} articles`;
  await sleep(PARSE_MS);
  return 'articles';
}

const cached = process.argv.includes('--cached');
const server = http.createServer(async (request, response) => {
  const body = await answer(request.url, cached);
  response.writeHead(200, { 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
