// The same as sharing.py.
//
//   node sharing.mjs REDIS [--own]

import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';

function command(...words) {
  return `*${words.length}\r\n` + words.map((word) => `$${word.length}\r\n${word}\r\n`).join('');
}

// A connection; replies come in the order of the commands. All of them are one line here.
class Redis {
  constructor(address) {
    const [host, port] = address.split(':');
    this.waiting = [];
    this.socket = net.connect({ host, port: Number(port), noDelay: true });
    let unread = '';
    this.socket.on('data', (data) => {
      unread += data;
      for (let end; (end = unread.indexOf('\r\n')) >= 0; unread = unread.slice(end + 2)) {
        this.waiting.shift()(unread.slice(0, end));
      }
    });
  }

  ask(...words) {
    this.socket.write(command(...words));
    return new Promise((answered) => this.waiting.push(answered));
  }
}

const [address, ...how] = process.argv.slice(2);
const redis = new Redis(address);
const other = how.includes('--own') ? new Redis(address) : redis;

async function waitForMessages() {
  // There is none.
  for (;;) await other.ask('BLPOP', 'orders', '0.06');
}

const server = http.createServer(async (request, response) => {
  await redis.ask('GET', 'session');
  response.end('ok');
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(
    process.env.READY_FILE,
    `${process.pid} 127.0.0.1:${server.address().port}\n`,
  );
});
waitForMessages();
