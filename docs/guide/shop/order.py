"""Sells from the stock, and remembers for CACHE_TTL seconds how much is left."""
import os
import time
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

STOCK = os.environ["STOCK_URL"]
TTL = float(os.environ.get("CACHE_TTL", "0"))
cached, cached_at = b"", -TTL


class Order(BaseHTTPRequestHandler):
    def do_GET(self):  # GET /left
        global cached, cached_at
        if time.monotonic() - cached_at >= TTL or not cached:
            status, cached = self.ask("/left")
            cached_at = time.monotonic()
            return self.answer(status, cached)
        self.answer(200, cached)

    def do_POST(self):  # POST /buy
        self.answer(*self.ask("/take", data=b""))

    def ask(self, path, data=None):
        try:
            return 200, urlopen(STOCK + path, data, timeout=5).read()
        except (OSError, HTTPException):
            return 503, b"the stock does not answer"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("", 8080), Order).serve_forever()
