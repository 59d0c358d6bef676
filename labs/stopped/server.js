'use strict';
// The same in node: one loop, idle helper threads.

const fs = require('node:fs');
const http = require('node:http');

const now = () => Number(process.hrtime.bigint()) / 1e6;

const server = http.createServer((request, response) => {
  const read = now();
  let ended = read;
  while (ended < read + 1) ended = now();
  const body = JSON.stringify({ read, begun: read, ended });
  response.writeHead(200, { 'Content-Length': body.length });
  response.end(body);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
