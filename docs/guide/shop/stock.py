"""Counts what is left. Taking one is not idempotent: a request that arrives twice takes two."""
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FILE = "data/left"


def left():
    return int(open(FILE).read()) if os.path.exists(FILE) else 10


class Stock(BaseHTTPRequestHandler):
    def do_GET(self):  # GET /left
        self.answer(left())

    def do_POST(self):  # POST /take
        os.makedirs("data", exist_ok=True)
        remaining = left() - 1
        with open(FILE, "w") as file:
            file.write(str(remaining))
        self.answer(remaining)

    def answer(self, count):
        body = json.dumps({"left": count}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("", 8081), Stock).serve_forever()
