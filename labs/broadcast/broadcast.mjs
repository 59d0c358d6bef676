// As broadcast.py: sends a message to all subscribers, one after another, every 100 ms. With --wait
// the next one has it only when the one before has taken it.

import fs from 'node:fs';
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

const MESSAGE = 1 << 18;
const EVERY_MS = 100;
const WAIT = process.argv.includes('--wait');

const text = Buffer.alloc(MESSAGE);
text[0] = 0x82;
text[1] = 0x7f;
text.writeBigUInt64BE(BigInt(MESSAGE - 10), 2);
const subscribers = [];

async function sendToAll() {
  for (const socket of subscribers) {
    if (WAIT) await new Promise((resolve) => { socket.write(text, resolve); });
    else socket.write(text);
  }
}

async function feed() {
  for (;;) {
    await sendToAll();
    await sleep(EVERY_MS);
  }
}

const server = http.createServer();
server.on('upgrade', (request, socket) => {
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n'
    + 'Connection: Upgrade\r\n\r\n');
  socket.on('error', () => {});
  subscribers.push(socket);
  if (subscribers.length === Number(request.url.slice(1))) feed();
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
