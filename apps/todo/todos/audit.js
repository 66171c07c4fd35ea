'use strict';

const QUEUE = 'audit';

/** Hands what people did to the log processor, through a list in Redis that carries the trace along. */
class AuditLog {
  #redis;
  #tracer;

  constructor(redis, tracer) {
    this.#redis = redis;
    this.#tracer = tracer;
  }

  write(username, action, todo) {
    return this.#tracer.local('write audit log', () => {
      const { traceId, spanId, sampled } = this.#tracer.id;
      const trace = { traceId, spanId, sampled: sampled.getOrElse(true) };
      return this.#redis.rPush(QUEUE, JSON.stringify({ username, action, todo, trace }));
    });
  }
}

module.exports = { AuditLog };
