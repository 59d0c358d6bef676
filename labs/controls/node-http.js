'use strict';
// A healthy node HTTP server whose handler waits 5 ms, as for a query to somewhere else.

const fs = require('node:fs');
const http = require('node:http');

const server = http.createServer((request, response) => {
  setTimeout(() => {
    response.writeHead(200, { 'Content-Length': 2 });
    response.end('ok');
  }, 5);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
