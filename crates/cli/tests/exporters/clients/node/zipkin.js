// The little trace by zipkin-js: zipkin.js v1|v2 ENDPOINT; prints the ids it chose.
// A server takes over its client's id, and nothing in what is sent says that it is shared.
const {
  Annotation, BatchRecorder, ConsoleRecorder, ExplicitContext, InetAddress, TraceId, Tracer, jsonEncoder, option,
} = require("zipkin");
const { HttpLogger } = require("zipkin-transport-http");

const TICK = 15625;
const [version, endpoint] = process.argv.slice(2);
const encoder = version === "v1" ? jsonEncoder.JSON_V1 : jsonEncoder.JSON_V2;
const recorder = new BatchRecorder({
  logger: new HttpLogger({ endpoint: `${endpoint}/api/${version}/spans`, jsonEncoder: encoder, httpInterval: 50 }),
});
const start = Math.floor(Date.now() / 1000) * 1000000;
const tracer = new Tracer({ ctxImpl: new ExplicitContext(), recorder, localServiceName: "front", defaultTags: {} });

function record(traceId, ticks, annotation) {
  recorder.record({ traceId, timestamp: start + ticks * TICK, annotation });
}

const root = tracer.createRootId();
const call = tracer.letId(root, () => tracer.createChildId());
const address = (last) => new InetAddress(`10.0.0.${last}`);
record(root, 0, new Annotation.ServiceName("front"));
record(root, 0, new Annotation.LocalAddr({ host: address(1), port: 80 }));
record(root, 0, new Annotation.Rpc("GET /pay"));
record(root, 0, new Annotation.BinaryAnnotation("http.path", "/pay"));
record(root, 0, new Annotation.ServerRecv());
record(call, 1, new Annotation.ServiceName("front"));
record(call, 1, new Annotation.LocalAddr({ host: address(1), port: 80 }));
record(call, 1, new Annotation.Rpc("PUT /stock"));
record(call, 1, new Annotation.ServerAddr({ serviceName: "stock", host: address(2), port: 80 }));
record(call, 1, new Annotation.ClientSend());
record(call, 7, new Annotation.ClientRecv());
record(root, 8, new Annotation.ServerSend());

// The server is another process; here it is another recorder, which joins the span that it was sent.
const atStock = new BatchRecorder({
  logger: new HttpLogger({ endpoint: `${endpoint}/api/${version}/spans`, jsonEncoder: encoder, httpInterval: 50 }),
});
const joined = new TraceId({
  traceId: call.traceId, parentId: new option.Some(root.spanId), spanId: call.spanId, sampled: new option.Some(true),
});
const serve = (ticks, annotation) =>
  atStock.record({ traceId: joined, timestamp: start + ticks * TICK, annotation });
serve(2, new Annotation.ServiceName("stock"));
serve(2, new Annotation.LocalAddr({ host: address(2), port: 80 }));
serve(2, new Annotation.Rpc("PUT /stock"));
serve(2, new Annotation.BinaryAnnotation("item", "pear"));
serve(2, new Annotation.BinaryAnnotation("error", "out of stock"));
serve(2, new Annotation.ServerRecv());
serve(3, new Annotation.Message("cache miss"));
serve(6, new Annotation.ServerSend());

setTimeout(() => {
  console.log(JSON.stringify({ trace: root.traceId, start, root: root.spanId, call: call.spanId, served: call.spanId }));
  process.exit(0);
}, 1500);
