"""The little trace by py_zipkin 0.11, which speaks Thrift only: zipkin_thrift.py thrift ENDPOINT; prints the ids it chose."""

import json
import sys
import time
import urllib.request

# It was written for thriftpy, which does not build any more; thriftpy2 is its successor with the same modules.
import thriftpy2
import thriftpy2.protocol.binary
import thriftpy2.thrift
import thriftpy2.transport

for name in ("", ".protocol", ".protocol.binary", ".thrift", ".transport"):
    sys.modules["thriftpy" + name] = sys.modules["thriftpy2" + name]

from py_zipkin import logging_helper, zipkin
from py_zipkin.util import generate_random_64bit_string

# A sixty-fourth of a second, which every way of counting time can hold.
TICK = 1 / 64
endpoint = sys.argv[-1]


class Clock:
    """Time as the trace wants it: this version knows no other way to say how long a span lasted."""

    now = float(int(time.time()))

    def time(self):
        return self.now


clock = zipkin.time = logging_helper.time = Clock()
start = clock.now


def send(payload):
    request = urllib.request.Request(endpoint + "/api/v1/spans", payload, {"content-type": "application/x-thrift"})
    assert urllib.request.urlopen(request).status == 202


def span(service, name, side, ids, at, lasts, tags, annotations=None, other=None):
    clock.now = start + at * TICK
    with zipkin.zipkin_span(
        service_name=service,
        span_name=name,
        include=(side,),
        zipkin_attrs=zipkin.ZipkinAttrs(*ids, "0", True),
        transport_handler=send,
        binary_annotations=tags,
        report_root_timestamp=True,
        host="10.0.0.1",
        port=80,
    ) as it:
        if annotations:
            logging_helper.zipkin_logger.debug({"annotations": annotations, "name": name})
        if other:
            it.add_sa_binary_annotation(port=80, service_name=other, host="10.0.0.2")
        clock.now = start + (at + lasts) * TICK


trace, root, call, served = (generate_random_64bit_string() for _ in range(4))
span("front", "GET /pay", "server", (trace, root, None), 0, 8, {"http.path": "/pay"})
span("front", "PUT /stock", "client", (trace, call, root), 1, 6, {}, other="stock")
span(
    "stock", "PUT /stock", "server", (trace, served, call), 2, 4,
    {"item": "pear", "error": "out of stock"}, {"cache miss": start + 3 * TICK},
)
print(json.dumps(dict(trace=trace, start=int(start * 1_000_000), root=root, call=call, served=served)))
