"""A web service: pages.py [PORT]. Each page is a table as JSON; the last 32 MiB of pages are
kept."""
import json
import random
import sys
import threading
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEPT = 32 << 20
pages, kept, lock = OrderedDict(), 0, threading.Lock()


def page(number, rows):
    words = random.Random(number)
    table = [{"id": i, "name": f"row {words.randrange(1000)}", "text": "x" * words.randrange(400)}
             for i in range(rows)]
    return json.dumps({"page": number, "rows": table}).encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        global kept
        number, rows = map(int, self.path.strip("/").split("/"))
        body = page(number, rows)
        with lock:
            pages[number] = body
            kept += len(body)
            while kept > KEPT:
                kept -= len(pages.popitem(last=False)[1])
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer.daemon_threads = True
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
