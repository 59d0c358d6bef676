'use strict';
// A node HTTP server whose loop has honest work: 4.5 ms of CPU time a request, of which V8 takes
// some for itself. With --cheap a tenth.

const fs = require('node:fs');
const http = require('node:http');

const CHEAP = process.argv.includes('--cheap');
const VERIFY_MS = CHEAP ? 0.36 : 3.6;
const RENDER_MS = CHEAP ? 0.09 : 0.9;

function usedMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function verifySignature() {
  const end = usedMs() + VERIFY_MS;
  let sum = 0;
  while (usedMs() < end) for (let i = 0; i < 2000; i++) sum += i;
  return sum;
}

function renderPage() {
  const end = usedMs() + RENDER_MS;
  let sum = 0;
  while (usedMs() < end) for (let i = 0; i < 2000; i++) sum += i;
  return `page ${sum > 0}`;
}

const server = http.createServer((request, response) => {
  verifySignature();
  const body = renderPage();
  response.writeHead(200, { 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', 256, () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
