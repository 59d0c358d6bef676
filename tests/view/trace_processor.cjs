// Runs Perfetto's trace processor, compiled to WebAssembly: what comes on stdin is the stream of
// its remote procedure calls (TraceProcessorRpcStream), and what it answers goes to stdout.
//
//   node trace_processor.cjs FOLDER      where trace_processor.wasm and its glue are
//
// The glue is made for a worker of a browser. So there is a worker's global scope, as far as the
// glue asks for it, and a port that is the two pipes.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const folder = process.argv[2];
const wasm = fs.readFileSync(path.join(folder, "trace_processor.wasm"));

// Nothing but answers may come on stdout.
console.log = console.error;
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
globalThis.location = { href: "file:///trace_processor/" };
// It asks for one file.
globalThis.XMLHttpRequest = class {
  response = new Uint8Array(wasm).buffer;
  open() {}
  send() {}
};

// Texts of the glue, and what stands there instead.
const EDITS = [
  // There is one module, of 32 bits.
  ["this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;"],
  // To see when it is ready.
  ["const wasmBridge = new", "const wasmBridge = self.bridge = new"],
];

let glue = fs.readFileSync(path.join(folder, "engine_bundle.node.js"), "utf8");
for (const [from, to] of EDITS) {
  if (!glue.includes(from)) throw new Error(`the glue is another: it has no "${from}"`);
  glue = glue.replace(from, to);
}
vm.runInThisContext(glue);

const port = {
  postMessage(answer) {
    let at = 0;
    while (at < answer.length) at += fs.writeSync(1, answer, at);
  },
};

async function main() {
  globalThis.onmessage({ data: port });
  // Its buffer is made last.
  while (!globalThis.bridge.reqBufferAddr) await new Promise((then) => setTimeout(then, 5));
  for await (const bytes of process.stdin) port.onmessage({ data: new Uint8Array(bytes) });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
