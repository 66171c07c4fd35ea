"""Traces and metrics of one process by the OpenTelemetry SDK: both.py EXPORTER ENDPOINT; prints the trace's id.

It exports before and after the span, as a periodic exporter would around it.
"""

import json
import sys

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import SpanKind

name, endpoint = sys.argv[1:]
# As some back ends want it.
delta = {kind: AggregationTemporality.DELTA for kind in (Counter, Histogram, ObservableCounter)}
if name == "otlp-http":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    spans = OTLPSpanExporter(endpoint=endpoint + "/v1/traces")
    metrics = OTLPMetricExporter(endpoint=endpoint + "/v1/metrics")
else:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    spans = OTLPSpanExporter(endpoint=endpoint, insecure=True)
    metrics = OTLPMetricExporter(endpoint=endpoint, insecure=True, preferred_temporality=delta)

resource = Resource.create({"service.name": "front", "service.instance.id": "627cc493-f310-47de-96bd-71410b7dec09"})
tracing = TracerProvider(resource=resource)
tracing.add_span_processor(SimpleSpanProcessor(spans))
meters = MeterProvider(resource=resource, metric_readers=[PeriodicExportingMetricReader(metrics)])
meter = meters.get_meter("shop")
spent = 1.0
meter.create_observable_counter(
    "process.cpu.time",
    [lambda _: [Observation(spent, {"type": "user"}), Observation(spent / 2, {"type": "system"})]],
    unit="s",
)
meter.create_observable_up_down_counter("process.memory.usage", [lambda _: [Observation(40 << 20)]], unit="By")
meter.create_observable_up_down_counter("process.thread.count", [lambda _: [Observation(7)]])
orders, wait = meter.create_counter("orders"), meter.create_histogram("wait", unit="ms")


def work():
    orders.add(3, {"kind": "pay"})
    wait.record(12.5)


work()
assert meters.force_flush()
with tracing.get_tracer("shop").start_as_current_span("GET /pay", kind=SpanKind.SERVER) as span:
    trace = span.get_span_context().trace_id
    work()
    spent += 1.0
tracing.shutdown()
meters.shutdown()
print(json.dumps({"trace": f"{trace:032x}"}))
