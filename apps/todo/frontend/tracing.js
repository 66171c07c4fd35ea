// OpenTelemetry, loaded before everything else: node --require ./tracing.js server.js
'use strict';

const { CompositePropagator, W3CTraceContextPropagator } = require('@opentelemetry/core');
const { OTLPTraceExporter } = require('@opentelemetry/exporter-trace-otlp-proto');
const { registerInstrumentations } = require('@opentelemetry/instrumentation');
const { HttpInstrumentation } = require('@opentelemetry/instrumentation-http');
const { B3InjectEncoding, B3Propagator } = require('@opentelemetry/propagator-b3');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { BatchSpanProcessor, NodeTracerProvider } = require('@opentelemetry/sdk-trace-node');

// The exporter finds this address by itself; without it there is nobody to send to.
const collector = process.env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT;
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': process.env.OTEL_SERVICE_NAME || 'frontend' }),
  spanProcessors: collector ? [new BatchSpanProcessor(new OTLPTraceExporter())] : [],
});
provider.register({
  // The services behind this one know B3 only.
  propagator: new CompositePropagator({
    propagators: [
      new W3CTraceContextPropagator(),
      new B3Propagator({ injectEncoding: B3InjectEncoding.MULTI_HEADER }),
    ],
  }),
});
registerInstrumentations({
  tracerProvider: provider,
  instrumentations: [
    new HttpInstrumentation({
      // Probes are not worth a span, and neither is what the exporter itself sends.
      ignoreIncomingRequestHook: (request) => request.url === '/health',
      requireParentforOutgoingSpans: true,
    }),
  ],
});

module.exports = { stopTracing: () => provider.shutdown() };
