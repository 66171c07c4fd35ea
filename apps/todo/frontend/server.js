// Frontend serves the page and is the one door to the services behind it.
'use strict';

const path = require('node:path');

const express = require('express');

const { Upstream } = require('./upstream');
const { stopTracing } = require('./tracing');

const port = Number(process.env.PORT || 8080);
const auth = new Upstream('auth', process.env.AUTH_URL || 'http://auth:8081');
const todos = new Upstream('todos', process.env.TODOS_URL || 'http://todos:8082');
const users = new Upstream('users', process.env.USERS_URL || 'http://users:8083');
const log = new Upstream('log-processor', process.env.LOG_URL || 'http://log-processor:8084');

const app = express();
app.disable('x-powered-by');
app.get('/health', (_req, res) => res.sendStatus(204));
app.use(express.static(path.join(__dirname, 'public')));
app.use(express.json({ limit: '64kb' }));

// Whoever logs in gets the list at once, so that the page needs one request to show something.
app.post('/api/login', handle(async (req, res) => {
  const login = await auth.call('POST', '/login', { body: req.body });
  if (login.status !== 200) return send(res, login);
  const token = login.body.accessToken;
  const list = await todos.call('GET', '/todos', { authorization: `Bearer ${token}` });
  if (list.status !== 200) return send(res, list);
  res.json({ accessToken: token, todos: list.body });
}));

app.get('/api/users', pass(users, 'GET', () => '/users'));
app.get('/api/todos', pass(todos, 'GET', () => '/todos'));
app.post('/api/todos', pass(todos, 'POST', () => '/todos'));
app.delete('/api/todos/:id', pass(todos, 'DELETE', (req) => `/todos/${encodeURIComponent(req.params.id)}`));
app.get('/api/log', pass(log, 'GET', (req) => `/entries?${new URLSearchParams(req.query)}`));

// Express tells handlers of errors by their four parameters.
app.use((error, _req, res, _next) => {
  const status = error.status || 500;
  if (status >= 500) console.error(error.message);
  res.status(status).json({ error: error.message });
});

const server = app.listen(port, () => console.log(`frontend listens on ${port}`));
process.once('SIGTERM', () => {
  server.close(() => stopTracing().finally(() => process.exit(0)));
  server.closeIdleConnections();
});

/** Passes a request on with whatever says who sent it, and passes the answer back. */
function pass(upstream, method, target) {
  return handle(async (req, res) => {
    const body = method === 'POST' ? req.body : undefined;
    send(res, await upstream.call(method, target(req), { authorization: req.get('authorization'), body }));
  });
}

function send(res, answer) {
  if (answer.body === undefined) res.sendStatus(answer.status);
  else res.status(answer.status).json(answer.body);
}

/** Express 4 does not wait for promises. */
function handle(work) {
  return (req, res, next) => Promise.resolve(work(req, res)).catch(next);
}
