'use strict';
// A node HTTP server that asks another one for each request, on a new connection: asks.js ADDRESS

const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');

const [host, port] = process.argv[2].split(':');

function ask(done) {
  const peer = net.connect({ host, port: Number(port) });
  peer.on('error', done);
  peer.once('data', () => {
    peer.destroy();
    done();
  });
  peer.write('GET / HTTP/1.1\r\n\r\n');
}

const server = http.createServer((request, response) => {
  ask((failure) => {
    response.writeHead(failure ? 502 : 200, { 'Content-Length': 2 });
    response.end('{}');
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
