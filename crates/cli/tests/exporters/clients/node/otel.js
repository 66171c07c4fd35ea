// The little trace by the OpenTelemetry SDK: otel.js EXPORTER ENDPOINT; prints the ids it chose.
const { context, trace, SpanKind, SpanStatusCode } = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const sdk = require("@opentelemetry/sdk-trace-node");

// A sixty-fourth of a second, which every way of counting time can hold; in milliseconds.
const TICK = 15.625;
const [name, endpoint] = process.argv.slice(2);

function exporter() {
  switch (name) {
    case "otlp-proto": {
      const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-proto");
      return new OTLPTraceExporter({ url: `${endpoint}/v1/traces`, compression: "gzip" });
    }
    case "otlp-json": {
      const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-http");
      return new OTLPTraceExporter({ url: `${endpoint}/v1/traces` });
    }
    case "otlp-grpc": {
      const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-grpc");
      return new OTLPTraceExporter({ url: endpoint, compression: "gzip" });
    }
    default: {
      const { ZipkinExporter } = require("@opentelemetry/exporter-zipkin");
      return new ZipkinExporter({ url: `${endpoint}/api/v2/spans` });
    }
  }
}

function tracer(service) {
  const provider = new sdk.BasicTracerProvider({
    resource: resourceFromAttributes({ "service.name": service }),
    spanProcessors: [new sdk.BatchSpanProcessor(exporter())],
  });
  return [provider, provider.getTracer("shop")];
}

const [front, atFront] = tracer("front");
const [stock, atStock] = tracer("stock");
const start = Math.floor(Date.now() / 1000) * 1000;
const at = (ticks) => {
  const micros = (start % 1000) * 1000 + ticks * TICK * 1000;
  return [start / 1000 + Math.floor(micros / 1e6), (micros % 1e6) * 1000];
};
const within = (span) => trace.setSpan(context.active(), span);

const root = atFront.startSpan("GET /pay", {
  kind: SpanKind.SERVER, startTime: at(0), attributes: { "http.path": "/pay" },
});
const call = atFront.startSpan("PUT /stock", {
  kind: SpanKind.CLIENT, startTime: at(1), attributes: { "peer.service": "stock" },
}, within(root));
const served = atStock.startSpan("PUT /stock", {
  kind: SpanKind.SERVER, startTime: at(2), attributes: { item: "pear" },
}, within(call));
served.addEvent("cache miss", at(3));
served.setStatus({ code: SpanStatusCode.ERROR, message: "out of stock" });
served.end(at(6));
call.end(at(7));
root.end(at(8));

Promise.all([front.forceFlush(), stock.forceFlush()])
  .then(() => Promise.all([front.shutdown(), stock.shutdown()]))
  .then(() => {
    const [r, c, s] = [root, call, served].map((span) => span.spanContext());
    console.log(JSON.stringify({ trace: r.traceId, start: start * 1000, root: r.spanId, call: c.spanId, served: s.spanId }));
  });
