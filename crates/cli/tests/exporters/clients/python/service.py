"""A service traced by the OpenTelemetry SDK, set up as its users do: by nothing but the environment."""

import http.server
import os
import urllib.request

from opentelemetry import propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

if os.environ["EXPORTER"] == "otlp":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Exporter
else:
    from opentelemetry.exporter.zipkin.json import ZipkinExporter as Exporter

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Exporter()))
tracer = provider.get_tracer("service")
behind = os.environ.get("BEHIND")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def do_GET(self):
        context = propagate.extract(self.headers)
        with tracer.start_as_current_span("answer", context=context, kind=SpanKind.SERVER):
            if behind:
                with tracer.start_as_current_span("ask for a word", kind=SpanKind.CLIENT):
                    headers = {}
                    propagate.inject(headers)
                    urllib.request.urlopen(urllib.request.Request(behind, None, headers), timeout=10).read()
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")


http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
