'use strict';
// Websockets in node, without a library: it sends back what it gets, and sends all clients a tick
// every 100 ms.

const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');

const MAGIC = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const clients = new Set();

// Short messages only, in one frame.
const frame = (text) => Buffer.concat([Buffer.from([0x81, text.length]), text]);

function take(socket, pending) {
  let rest = pending;
  while (rest.length >= 6 && rest.length >= 6 + (rest[1] & 0x7f)) {
    const length = rest[1] & 0x7f;
    const mask = rest.subarray(2, 6);
    const masked = rest.subarray(6, 6 + length);
    const text = Buffer.from(masked.map((byte, index) => byte ^ mask[index % 4]));
    if ((rest[0] & 0x0f) === 1) socket.write(frame(text));
    rest = rest.subarray(6 + length);
  }
  return rest;
}

const server = http.createServer();
server.on('upgrade', (request, socket) => {
  const hash = crypto.createHash('sha1');
  const key = hash.update(request.headers['sec-websocket-key'] + MAGIC).digest('base64');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
    + `Sec-WebSocket-Accept: ${key}\r\n\r\n`);
  socket.setNoDelay(true);
  clients.add(socket);
  let pending = Buffer.alloc(0);
  socket.on('data', (data) => {
    pending = take(socket, Buffer.concat([pending, data]));
  });
  socket.on('close', () => clients.delete(socket));
  socket.on('error', () => clients.delete(socket));
});
setInterval(() => {
  for (const socket of clients) socket.write(frame(Buffer.from('tick')));
}, 100);
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
