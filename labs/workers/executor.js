'use strict';
// A node server that opens a file for each request. The threads of libuv's pool do it, four unless
// UV_THREADPOOL_SIZE says otherwise, and the file system takes its time.
//
//   executor.js FOLDER

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');

const folder = process.argv[2];
const now = () => Number(process.hrtime.bigint()) / 1e6;

// When the opener came, says who kept it: see leases.py.
const came = (fd) => Number(fs.fstatSync(fd, { bigint: true }).mtimeNs) / 1e6;

function openReport(name, done) {
  fs.open(path.join(folder, name), 'r+', (error, fd) => {
    if (error) throw error;
    done(fd);
  });
}

const server = http.createServer((request, response) => {
  const read = now();
  openReport(request.url.slice(1), (fd) => {
    const body = JSON.stringify({ read, begun: came(fd), ended: now() });
    fs.closeSync(fd);
    response.writeHead(200, { 'Content-Length': body.length });
    response.end(body);
  });
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
