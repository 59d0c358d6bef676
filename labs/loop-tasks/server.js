'use strict';
// A node HTTP server with 1 ms of CPU time for each request, and something else in the same loop:
// 5 ms at a time, by setImmediate. With --alone there is nothing else.

const fs = require('node:fs');
const http = require('node:http');

const ANSWER_MS = 1;
const TASK_MS = 5;

function usedMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function burn(ms) {
  const end = usedMs() + ms;
  let sum = 0;
  while (usedMs() < end) for (let i = 0; i < 2000; i++) sum += i;
  return sum;
}

function rebuildIndex() {
  burn(TASK_MS);
  setImmediate(rebuildIndex);
}

const server = http.createServer((request, response) => {
  const body = `page ${burn(ANSWER_MS) > 0}`;
  response.writeHead(200, { 'Content-Length': Buffer.byteLength(body) });
  response.end(body);
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
  if (!process.argv.includes('--alone')) rebuildIndex();
});
