'use strict';
// A node HTTP server whose handler computes for 8 ms of CPU time.

const fs = require('node:fs');
const http = require('node:http');

const RENDER_MS = 8;

function usedMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function renderPage() {
  const end = usedMs() + RENDER_MS;
  let sum = 0;
  while (usedMs() < end) for (let i = 0; i < 10000; i++) sum += i;
  return `page ${sum > 0}`;
}

const server = http.createServer((request, response) => {
  const body = renderPage();
  response.writeHead(200, { 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
