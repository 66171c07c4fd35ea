"""The little trace by py_zipkin 1.x: zipkin_v2.py v1-json|v2-json|v2-proto ENDPOINT; prints the ids it chose."""

import json
import sys
import time
import urllib.request

from py_zipkin import Encoding, Kind, logging_helper, zipkin
from py_zipkin.transport import BaseTransportHandler
from py_zipkin.util import ZipkinAttrs, generate_random_64bit_string

# A sixty-fourth of a second, which every way of counting time can hold.
TICK = 1 / 64
name, endpoint = sys.argv[1:]
ENCODING = {"v1-json": Encoding.V1_JSON, "v2-json": Encoding.V2_JSON, "v2-proto": Encoding.V2_PROTO3}[name]


class Transport(BaseTransportHandler):
    def get_max_payload_bytes(self):
        return None

    def send(self, payload):
        path = "/api/v1/spans" if name == "v1-json" else "/api/v2/spans"
        content_type = "application/x-protobuf" if name == "v2-proto" else "application/json"
        body = payload if isinstance(payload, bytes) else payload.encode()
        request = urllib.request.Request(endpoint + path, body, {"content-type": content_type})
        assert urllib.request.urlopen(request).status == 202


class Clock:
    """Time as the trace wants it: root spans know no other way to say how long they lasted."""

    now = float(int(time.time()))

    def time(self):
        return self.now


clock = zipkin.time = logging_helper.time = Clock()
start = clock.now


def span(service, name, kind, ids, at, lasts, tags, annotation=None, other=None):
    clock.now = start + at * TICK
    with zipkin.zipkin_span(
        service_name=service,
        span_name=name,
        kind=kind,
        zipkin_attrs=ZipkinAttrs(*ids, "0", True),
        transport_handler=Transport(),
        binary_annotations=tags,
        report_root_timestamp=True,
        encoding=ENCODING,
        host="10.0.0.1",
        port=80,
    ) as it:
        if annotation:
            it.add_annotation(annotation[0], timestamp=start + annotation[1] * TICK)
        if other:
            it.add_sa_binary_annotation(port=80, service_name=other, host="10.0.0.2")
        clock.now = start + (at + lasts) * TICK


trace, root, call, served = (generate_random_64bit_string() for _ in range(4))
span("front", "GET /pay", Kind.SERVER, (trace, root, None), 0, 8, {"http.path": "/pay"})
span("front", "PUT /stock", Kind.CLIENT, (trace, call, root), 1, 6, {}, other="stock")
span(
    "stock", "PUT /stock", Kind.SERVER, (trace, served, call), 2, 4,
    {"item": "pear", "error": "out of stock"}, ("cache miss", 3),
)
print(json.dumps(dict(trace=trace, start=int(start * 1_000_000), root=root, call=call, served=served)))
