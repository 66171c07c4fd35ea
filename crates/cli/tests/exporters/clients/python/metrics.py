"""Metrics by the OpenTelemetry SDK: metrics.py EXPORTER ENDPOINT."""

import sys

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

name, endpoint = sys.argv[1:]
if name == "otlp-http":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    exporter = OTLPMetricExporter(endpoint=endpoint + "/v1/metrics")
else:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    exporter = OTLPMetricExporter(endpoint=endpoint, insecure=True)
provider = MeterProvider(
    resource=Resource.create({"service.name": "front", "service.instance.id": "front-1"}),
    metric_readers=[PeriodicExportingMetricReader(exporter)],
)
meter = provider.get_meter("shop")
meter.create_counter("orders", unit="1").add(3, {"kind": "pay"})
meter.create_histogram("wait", unit="ms").record(12.5)
meter.create_observable_gauge("process.memory.usage", [lambda _: [Observation(4096)]], unit="By")
assert provider.force_flush()
provider.shutdown()
