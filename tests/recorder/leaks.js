// Keeps buffers under functions whose code node makes while the program runs.
'use strict';
const kept = [];

function lose_session(bytes) {
  kept.push(new ArrayBuffer(bytes));
}

function serve(count) {
  for (let at = 0; at < count; at++) lose_session(16384);
}

console.log('ready');
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  if (line === 'quit') process.exit(0);
  serve(Number(line));
  console.log('done');
});
