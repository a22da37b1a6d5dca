// A web service: images.js PORT. Each image is a buffer outside the JavaScript heap, scaled down;
// the last 32 MiB are kept.
const http = require("http");

const KEPT = 32 << 20;
const images = new Map();
let kept = 0;

function image(number, rows) {
  const pixels = Buffer.allocUnsafeSlow(rows * 1024);
  pixels.fill(number & 255);
  const small = Buffer.allocUnsafeSlow(rows * 256);
  for (let i = 0; i < small.length; i += 64) small[i] = pixels[4 * i];
  return small;
}

http
  .createServer((request, response) => {
    const [number, rows] = request.url.slice(1).split("/").map(Number);
    const body = image(number, rows);
    images.set(number, body);
    kept += body.length;
    for (const [oldest, its] of images) {
      if (kept <= KEPT) break;
      images.delete(oldest);
      kept -= its.length;
    }
    response.writeHead(200, {"Content-Length": body.length});
    response.end(body);
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
