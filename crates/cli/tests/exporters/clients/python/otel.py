"""The little trace by the OpenTelemetry SDK: otel.py EXPORTER ENDPOINT; prints the ids it chose."""

import json
import sys
import time

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode

# A sixty-fourth of a second, which every way of counting time can hold.
TICK = 15_625_000


def exporter(name, endpoint):
    if name == "otlp-http":
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint + "/v1/traces", compression=Compression.Gzip)
    if name == "otlp-grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint, insecure=True)
    if name == "zipkin-json":
        from opentelemetry.exporter.zipkin.json import ZipkinExporter

        return ZipkinExporter(endpoint=endpoint + "/api/v2/spans")
    from opentelemetry.exporter.zipkin.proto.http import ZipkinExporter

    return ZipkinExporter(endpoint=endpoint + "/api/v2/spans")


def tracer(service, name, endpoint):
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(exporter(name, endpoint)))
    return provider, provider.get_tracer("shop")


name, endpoint = sys.argv[1:]
front, at_front = tracer("front", name, endpoint)
stock, at_stock = tracer("stock", name, endpoint)
start = time.time_ns() // 1_000_000_000 * 1_000_000_000

root = at_front.start_span("GET /pay", kind=SpanKind.SERVER, start_time=start, attributes={"http.path": "/pay"})
within = trace.set_span_in_context(root)
call = at_front.start_span(
    "PUT /stock",
    context=within,
    kind=SpanKind.CLIENT,
    start_time=start + TICK,
    attributes={"peer.service": "stock"},
)
served = at_stock.start_span(
    "PUT /stock",
    context=trace.set_span_in_context(call),
    kind=SpanKind.SERVER,
    start_time=start + 2 * TICK,
    attributes={"item": "pear"},
)
served.add_event("cache miss", timestamp=start + 3 * TICK)
served.set_status(Status(StatusCode.ERROR, "out of stock"))
served.end(end_time=start + 6 * TICK)
call.end(end_time=start + 7 * TICK)
root.end(end_time=start + 8 * TICK)
for provider in (front, stock):
    assert provider.force_flush()
    provider.shutdown()
ids = [span.get_span_context() for span in (root, call, served)]
print(json.dumps({
    "trace": f"{ids[0].trace_id:032x}",
    "start": start // 1000,
    "root": f"{ids[0].span_id:016x}",
    "call": f"{ids[1].span_id:016x}",
    "served": f"{ids[2].span_id:016x}",
}))
