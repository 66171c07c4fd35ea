"""A service with the OpenTelemetry SDK, set up as its users do: by nothing but the environment. With Zipkin's exporter
its metrics go over gRPC, which the environment does not choose."""

import http.server
import os
import urllib.request

from opentelemetry import propagate
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

if os.environ["EXPORTER"] == "otlp":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as Exporter

    metrics = OTLPMetricExporter()
else:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.zipkin.json import ZipkinExporter as Exporter

    metrics = OTLPMetricExporter(endpoint="http://faultscope-collector:4317", insecure=True)

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(Exporter()))
tracer = provider.get_tracer("service")
meters = MeterProvider(metric_readers=[PeriodicExportingMetricReader(metrics)])
greetings = meters.get_meter("service").create_counter("greetings")
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
        greetings.add(1)
        assert meters.force_flush()
        self.send_response(200)
        self.send_header("content-length", "5")
        self.end_headers()
        self.wfile.write(b"hello")


http.server.ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Handler).serve_forever()
