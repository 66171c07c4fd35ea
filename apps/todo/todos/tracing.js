// zipkin-js, which sends Zipkin v2 JSON and lets a server share the span id of its client.
'use strict';

const { BatchRecorder, ConsoleRecorder, Tracer, jsonEncoder } = require('zipkin');
const CLSContext = require('zipkin-context-cls');
const { expressMiddleware } = require('zipkin-instrumentation-express');
const { HttpLogger } = require('zipkin-transport-http');

const NAME = 'todos';
// Often enough that a test sees its spans soon.
const SEND_EVERY_MS = 200;

const tracer = new Tracer({
  ctxImpl: new CLSContext('zipkin', true),
  recorder: recorder(process.env.ZIPKIN_ENDPOINT),
  localServiceName: NAME,
  traceId128Bit: true,
});

function recorder(endpoint) {
  if (!endpoint) return new ConsoleRecorder(() => {});
  const logger = new HttpLogger({ endpoint, jsonEncoder: jsonEncoder.JSON_V2, httpInterval: SEND_EVERY_MS });
  return new BatchRecorder({ logger });
}

function traceRequests(port) {
  return expressMiddleware({ tracer, serviceName: NAME, port });
}

/** With RECORD_PAYLOADS, spans carry what a replay needs, in the tags `req`, `req_headers` and `res`. */
function recordPayload(req, res, next) {
  if (process.env.RECORD_PAYLOADS === 'true') {
    const { url, method, user, body } = req;
    const id = tracer.id;
    const tag = (name, value) => tracer.letId(id, () => tracer.recordBinary(name, JSON.stringify(value)));
    tag('req', { url, method, user, body });
    tag('req_headers', req.headers);
    const json = res.json.bind(res);
    res.json = (answer) => {
      tag('res', answer);
      return json(answer);
    };
  }
  next();
}

module.exports = { recordPayload, traceRequests, tracer };
