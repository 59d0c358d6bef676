'use strict';
// A healthy node HTTPS server that closes connections which were idle for 1.5 s: node-https.js
// FOLDER, where the certificate is made.

const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const https = require('node:https');
const path = require('node:path');

const folder = process.argv[2];
execFileSync(path.join(__dirname, 'certificate.sh'), [folder]);
const read = (name) => fs.readFileSync(path.join(folder, name));
const [key, cert] = ['key.pem', 'certificate.pem'].map(read);
const server = https.createServer({ key, cert, keepAliveTimeout: 1500 }, (request, response) => {
  response.writeHead(200, { 'Content-Length': 2 });
  response.end('ok');
});
server.keepAliveTimeout = 1500;
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync(process.env.READY_FILE, `${process.pid} 127.0.0.1:${server.address().port}\n`);
});
