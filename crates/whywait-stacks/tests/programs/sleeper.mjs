// Sleeps in functions of known names and lines, with frames of V8's own in between.
const word = new Int32Array(new SharedArrayBuffer(4));

function nap(milliseconds) {
  Atomics.wait(word, 0, 0, milliseconds);
}

class Renderer {
  render(milliseconds) {
    nap(milliseconds);
    return 1;
  }
}

const draw = (milliseconds) => [new Renderer()].map((renderer) => renderer.render(milliseconds));

// With `warm`, until the functions were compiled and optimised.
const rounds = process.argv.includes('warm') ? 60000 : 1;

function serve() {
  for (let round = 0; round < rounds; round += 1) draw(0);
  draw(60000);
}

setTimeout(serve, 1);
