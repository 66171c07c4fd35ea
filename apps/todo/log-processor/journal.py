"""What people did: taken from the queue that todos writes to, kept in Redis as one list for each user."""

import json
import logging
import random
import time

import redis

QUEUE = "audit"
# How often somebody who waits for an entry looks again.
LOOK_AGAIN_SECONDS = 0.05


class Journal:
    def __init__(self, client, tracing, longest_pause, seed=None):
        self.client = client
        self.tracing = tracing
        self.longest_pause = longest_pause
        self.random = random.Random(seed)

    def process_forever(self):
        while True:
            try:
                # The server's answer comes before the client loses patience with the socket.
                taken = self.client.blpop([QUEUE], timeout=1)
            except redis.RedisError as error:
                logging.warning("redis: %s", error)
                time.sleep(0.2)
                continue
            if taken:
                self.process(taken[1])

    def process(self, message):
        try:
            entry = json.loads(message)
            trace = entry.pop("trace")
            with self.tracing.process(trace) as span:
                # Logs take their time, and nobody knows how long.
                time.sleep(self.random.uniform(0, self.longest_pause))
                span.update_binary_annotations({"user": entry["username"], "action": entry["action"]})
                self.client.rpush(_key(entry["username"]), json.dumps(entry))
            logging.info("%s: %s %s", entry["username"], entry["action"], entry.get("todo", ""))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            logging.error("a message is no entry (%r): %.200s", error, message)
        except redis.RedisError as error:
            logging.error("an entry is lost: %s", error)

    def entries(self, username, wanted, wait):
        """Entries with these values, once there is one or the wait is over."""
        end = time.monotonic() + wait
        while True:
            stored = [json.loads(text) for text in self.client.lrange(_key(username), 0, -1)]
            found = [entry for entry in stored if all(str(entry.get(k)) == v for k, v in wanted.items())]
            if found or time.monotonic() >= end:
                return found
            time.sleep(LOOK_AGAIN_SECONDS)


def _key(username):
    return f"log:of:{username}"
