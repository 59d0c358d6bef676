'use strict';
// A node HTTP server whose handler computes for 60 ms.

const fs = require('node:fs');
const http = require('node:http');

const RENDER_MS = 60;

// For a fixed time: the promise shall not depend on the machine's speed.
function renderThumbnail() {
  const end = performance.now() + RENDER_MS;
  let pixels = 1;
  while (performance.now() < end) {
    for (let i = 0; i < 10000; i++) pixels = Math.imul(pixels, 31) + i;
  }
  return `thumbnail ${pixels & 1}`;
}

function main() {
  const server = http.createServer((request, response) => {
    const body = renderThumbnail();
    response.writeHead(200, { 'Content-Length': Buffer.byteLength(body) });
    response.end(body);
  });
  server.listen(0, '127.0.0.1', () => {
    fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
  });
}

// The map that --perf-basic-prof writes.
process.on('SIGTERM', () => {
  fs.rmSync(`/tmp/perf-${process.pid}.map`, { force: true });
  process.exit();
});
main();
