"""A collector made of OpenTelemetry's own messages: collector.py http|grpc PORT CONTROL ANSWERS.

ANSWERS are the first answers, with commas between them: `503`, `429+1` (with Retry-After), `400`, `partial` (one
span is not taken), `hang`; after them every request is taken. What was taken is told as JSON on the control port.
"""

import gzip
import json
import sys
import threading
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as service
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as service_grpc

protocol, port, control, answers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
answers = [answer for answer in answers.split(",") if answer]
seen = {"requests": 0, "headers": [], "spans": []}
lock = threading.Lock()
CODES = {"503": grpc.StatusCode.UNAVAILABLE, "429": grpc.StatusCode.RESOURCE_EXHAUSTED, "400": grpc.StatusCode.INVALID_ARGUMENT}


def next_answer(headers):
    with lock:
        seen["requests"] += 1
        seen["headers"].append(headers)
        return answers.pop(0) if answers else "200"


def take(request, answer):
    """Keeps the spans, but for the first where only a part is taken."""
    spans = [
        {
            "service": next(a.value.string_value for a in r.resource.attributes if a.key == "service.name"),
            "trace": span.trace_id.hex(),
            "id": span.span_id.hex(),
            "parent": span.parent_span_id.hex(),
            "name": span.name,
            "kind": span.kind,
            "start": span.start_time_unix_nano,
            "end": span.end_time_unix_nano,
            "error": [span.status.code, span.status.message],
            "events": [[event.time_unix_nano, event.name] for event in span.events],
            "attributes": {a.key: a.value.string_value or a.value.int_value for a in span.attributes},
        }
        for r in request.resource_spans
        for s in r.scope_spans
        for span in s.spans
    ]
    response = service.ExportTraceServiceResponse()
    if answer == "partial":
        spans = spans[1:]
        response.partial_success.rejected_spans = 1
        response.partial_success.error_message = "one was not liked"
    with lock:
        seen["spans"] += spans
    return response


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.path == "/v1/traces", self.path
        assert self.headers["content-type"] == "application/x-protobuf"
        if self.headers["content-encoding"] == "gzip":
            body = gzip.decompress(body)
        request = service.ExportTraceServiceRequest.FromString(body)
        answer = next_answer({name.lower(): value for name, value in self.headers.items()})
        if answer == "hang":
            threading.Event().wait()
        status, _, after = answer.partition("+")
        status = int(status) if status.isdigit() else 200
        reply = take(request, answer).SerializeToString() if status == 200 else b"not now"
        self.send_response(status)
        if after:
            self.send_header("retry-after", after)
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


class Grpc(service_grpc.TraceServiceServicer):
    def Export(self, request, context):
        answer = next_answer(dict(context.invocation_metadata()))
        if answer == "hang":
            threading.Event().wait()
        status = answer.partition("+")[0]
        if status in CODES:
            context.abort(CODES[status], "not now")
        return take(request, answer)


class Control(BaseHTTPRequestHandler):
    def do_GET(self):
        with lock:
            body = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if protocol == "grpc":
    server = grpc.server(futures.ThreadPoolExecutor(4))
    service_grpc.add_TraceServiceServicer_to_server(Grpc(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
else:
    threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", port), Http).serve_forever, daemon=True).start()
ThreadingHTTPServer(("127.0.0.1", control), Control).serve_forever()
