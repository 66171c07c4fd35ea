'use strict';

const { setTimeout: sleep } = require('node:timers/promises');

// Longer texts are laid out on a page.
const LONG_TEXT = 200;
const PAGE_BYTES = Number(process.env.PAGE_MIB || 24) * 1024 * 1024;

// Seeded fault: the lists of this user take longer.
const SLOW_USER = process.env.SLOW_USER;
const SLOW_MS = Number(process.env.SLOW_MS || 300);

/** The todos of all users: in Redis, and in the memory of this process once somebody has asked for them. */
class TodoList {
  #redis;
  #tracer;
  /** User to a promise of a map of todos, so that concurrent first requests load once. */
  #users = new Map();
  #pages = [];

  constructor(redis, tracer) {
    this.#redis = redis;
    this.#tracer = tracer;
  }

  async list(username) {
    const todos = await this.#of(username);
    return [...todos.values()];
  }

  async create(username, content) {
    const todos = await this.#of(username);
    return this.#tracer.local('save todo', async () => {
      const id = await this.#redis.incr('todos:last');
      const todo = { id, content: content.length > LONG_TEXT ? this.#layOut(content) : content };
      await this.#redis.hSet(key(username), String(id), JSON.stringify(todo));
      todos.set(id, todo);
      return todo;
    });
  }

  /** Removes a todo, and says whether there was one. */
  async remove(username, id) {
    const todos = await this.#of(username);
    if (!todos.has(id)) return false;
    await this.#tracer.local('remove todo', () => this.#redis.hDel(key(username), String(id)));
    return todos.delete(id);
  }

  async #of(username) {
    if (username === SLOW_USER) await sleep(SLOW_MS);
    if (!this.#users.has(username)) {
      const loading = this.#tracer.local('load todos', () => this.#load(username));
      this.#users.set(username, loading);
      loading.catch(() => this.#users.delete(username));
    }
    return this.#users.get(username);
  }

  async #load(username) {
    const stored = await this.#redis.hGetAll(key(username));
    const todos = Object.values(stored).map((text) => JSON.parse(text));
    todos.sort((a, b) => a.id - b.id);
    return new Map(todos.map((todo) => [todo.id, todo]));
  }

  // Seeded fault: pages are kept for ever, so that every long text takes memory that never comes back.
  #layOut(content) {
    this.#pages.push(Buffer.alloc(PAGE_BYTES, content));
    return content.replace(/(.{80})/g, '$1\n');
  }
}

function key(username) {
  return `todos:of:${username}`;
}

module.exports = { TodoList };
