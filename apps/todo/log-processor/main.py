"""Reads what people did from a queue in Redis, and shows each of them their own entries."""

import json
import logging
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import jwt
import redis

from journal import Journal
from tracing import Tracing

LONGEST_WAIT_SECONDS = 10


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        target = urlsplit(self.path)
        if target.path == "/health":
            self.answer(200, {})
        elif target.path == "/entries":
            with self.server.tracing.serve("get /entries", self.headers):
                self.show_entries(parse_qs(target.query))
        else:
            self.answer(404, {"error": "there is only /entries"})

    def show_entries(self, query):
        try:
            username = self.username()
            wait = min(float(query.get("wait", ["0"])[0]), LONGEST_WAIT_SECONDS)
            wanted = {name: query[name][0] for name in ("action", "todo") if name in query}
            self.answer(200, {"entries": self.server.journal.entries(username, wanted, wait)})
        except jwt.PyJWTError as error:
            self.answer(401, {"error": str(error)})
        except ValueError:
            self.answer(400, {"error": "wait is not a number"})
        except redis.RedisError as error:
            self.answer(503, {"error": str(error)})

    def username(self):
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer":
            raise jwt.InvalidTokenError("no token")
        return jwt.decode(token, self.server.secret, algorithms=["HS256"])["username"]

    def answer(self, status, body):
        payload = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_):
        """Requests are seen in traces."""


def main():
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    port = int(os.environ.get("PORT", "8084"))
    client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://redis:6379"), decode_responses=True)

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    server.secret = os.environ.get("JWT_SECRET", "todo-secret")
    server.tracing = Tracing(os.environ.get("ZIPKIN_ENDPOINT"), port)
    server.journal = Journal(
        client,
        server.tracing,
        longest_pause=int(os.environ.get("LONGEST_PAUSE_MS", "100")) / 1000,
        seed=os.environ.get("SEED"),
    )
    threading.Thread(target=server.journal.process_forever, daemon=True).start()
    logging.info("log-processor listens on %d", port)
    server.serve_forever()


if __name__ == "__main__":
    main()
