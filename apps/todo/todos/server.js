// Todos keeps what people have to do. A list is read from Redis once and then kept in memory; changes go to both.
'use strict';

const express = require('express');
const redis = require('redis');

const { AuditLog } = require('./audit');
const { requireToken } = require('./tokens');
const { TodoList } = require('./todo-list');
const { recordPayload, traceRequests, tracer } = require('./tracing');

const port = Number(process.env.PORT || 8082);
const MAX_BODY = '64kb';

async function main() {
  const client = redis.createClient({ url: process.env.REDIS_URL || 'redis://redis:6379' });
  // The client reconnects by itself; without a listener an error would end the process.
  client.on('error', (error) => console.error(`redis: ${error.message}`));
  await client.connect();

  const todos = new TodoList(client, tracer);
  const audit = new AuditLog(client, tracer);
  const server = build(todos, audit).listen(port, () => console.log(`todos listens on ${port}`));

  process.once('SIGTERM', () => {
    server.close(() => client.quit().finally(() => process.exit(0)));
    server.closeIdleConnections();
  });
}

function build(todos, audit) {
  const app = express();
  app.disable('x-powered-by');
  // Probes are not worth a span.
  app.get('/health', (_req, res) => res.sendStatus(204));
  app.use(traceRequests(port));
  app.use(express.json({ limit: MAX_BODY }));
  app.use(requireToken(process.env.JWT_SECRET || 'todo-secret'));
  app.use(recordPayload);

  app.get('/todos', handle(async (req, res) => {
    const list = await todos.list(req.user.username);
    await audit.write(req.user.username, 'list');
    res.json(list);
  }));

  app.post('/todos', handle(async (req, res) => {
    const content = req.body && req.body.content;
    if (typeof content !== 'string' || content.trim() === '') {
      res.status(400).json({ error: 'a todo needs a content' });
      return;
    }
    const todo = await todos.create(req.user.username, content);
    await audit.write(req.user.username, 'create', todo.id);
    res.status(201).json(todo);
  }));

  app.delete('/todos/:id', handle(async (req, res) => {
    const id = Number(req.params.id);
    if (!(await todos.remove(req.user.username, id))) {
      res.status(404).json({ error: 'there is no such todo' });
      return;
    }
    await audit.write(req.user.username, 'delete', id);
    res.sendStatus(204);
  }));

  // Express tells handlers of errors by their four parameters.
  app.use((error, _req, res, _next) => {
    if (!error.status) console.error(error);
    res.status(error.status || 500).json({ error: error.status ? error.message : 'something went wrong' });
  });
  return app;
}

/** Express 4 does not wait for promises. */
function handle(work) {
  return (req, res, next) => work(req, res).catch(next);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
