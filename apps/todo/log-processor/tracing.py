"""py_zipkin as it was before version 1: Zipkin v1, encoded as Thrift."""

import logging
from urllib.error import URLError
from urllib.parse import urlsplit

from py_zipkin.encoding import Encoding
from py_zipkin.request_helpers import extract_zipkin_attrs_from_headers
from py_zipkin.transport import SimpleHTTPTransport
from py_zipkin.util import generate_random_64bit_string
from py_zipkin.zipkin import ZipkinAttrs, zipkin_server_span, zipkin_span

SERVICE = "log-processor"


class Collector(SimpleHTTPTransport):
    """Sends spans, and goes on without them when nobody takes them."""

    def send(self, payload):
        try:
            super().send(payload)
        except (URLError, OSError) as error:
            logging.warning("spans are lost: %s", error)


class Tracing:
    def __init__(self, endpoint, port):
        self.port = port
        self.transport = self._discard
        if endpoint:
            address = urlsplit(endpoint)
            self.transport = Collector(address.hostname, address.port or 9411)

    def process(self, trace):
        """A span below the one that wrote the message."""
        attributes = ZipkinAttrs(
            trace_id=trace["traceId"],
            span_id=generate_random_64bit_string(),
            parent_span_id=trace["spanId"],
            flags="0",
            is_sampled=bool(trace.get("sampled", True)),
        )
        # Nobody else reports this id, as a client does for its server.
        return self._span(zipkin_span, "process entry", attributes, report_root_timestamp=True)

    def serve(self, name, headers):
        """A span of a request, in the trace of the caller if it has one."""
        return self._span(zipkin_server_span, name, extract_zipkin_attrs_from_headers(headers))

    def _span(self, kind, name, attributes, **more):
        return kind(
            service_name=SERVICE,
            span_name=name,
            zipkin_attrs=attributes,
            transport_handler=self.transport,
            port=self.port,
            sample_rate=100,
            use_128bit_trace_id=True,
            encoding=Encoding.V1_THRIFT,
            **more,
        )

    @staticmethod
    def _discard(payload):
        """Takes spans when there is no collector."""
