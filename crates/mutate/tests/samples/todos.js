'use strict';

const express = require('express');
const redis = require('redis');

const app = express();
const client = redis.createClient({ url: process.env.REDIS_URL || 'redis://localhost:6379' });
const USERS = process.env.USERS_URL || 'http://users:8081';

app.use(express.json());

async function loadUser(name) {
  const answer = await fetch(`${USERS}/users/${name}`);
  if (!answer.ok) {
    throw new Error(`no user ${name}`);
  }
  return answer.json();
}

app.get('/todos/:user', async (req, res) => {
  const user = await loadUser(req.params.user);
  const text = await client.get(`todos:${user.id}`);
  const todos = text ? JSON.parse(text) : [];
  res.json({ user: user.name, todos, count: todos.length, done: false });
});

app.post('/todos/:user', async (req, res, next) => {
  try {
    await client.set(`todos:${req.params.user}`, JSON.stringify(req.body));
    await client.incr('writes');
    res.status(201).json({ 'saved': true });
  } catch (error) {
    next(error);
  }
});

app.get('/health', (req, res) => { res.send({ status: 'up' }); });

function sum(numbers) { return numbers.reduce((a, b) => a + b, 0); }

client.connect().then(() => app.listen(8080));
module.exports = { app, sum };
