'use strict';

const find = (id) => document.getElementById(id);
let token;

async function call(method, path, body) {
  const headers = { 'content-type': 'application/json' };
  if (token) headers.authorization = `Bearer ${token}`;
  const response = await fetch(`/api/${path}`, { method, headers, body: body && JSON.stringify(body) });
  const text = await response.text();
  const answer = text ? JSON.parse(text) : undefined;
  if (!response.ok) throw new Error(answer?.error ?? response.statusText);
  return answer;
}

function showTodos(todos) {
  find('todos').hidden = false;
  find('list').replaceChildren(...todos.map((todo) => {
    const item = document.createElement('li');
    const remove = document.createElement('button');
    remove.textContent = 'Done';
    remove.addEventListener('click', () => run(async () => {
      await call('DELETE', `todos/${todo.id}`);
      await refresh();
    }));
    item.append(todo.content, remove);
    return item;
  }));
}

async function refresh() {
  showTodos(await call('GET', 'todos'));
  const { entries } = await call('GET', 'log');
  find('log').replaceChildren(...entries.map((entry) => {
    const item = document.createElement('li');
    item.textContent = entry.todo ? `${entry.action} ${entry.todo}` : entry.action;
    return item;
  }));
}

/** Shows what went wrong, if something does. */
async function run(work) {
  find('message').textContent = '';
  try {
    await work();
  } catch (error) {
    find('message').textContent = error.message;
  }
}

function onSubmit(id, work) {
  find(id).addEventListener('submit', (event) => {
    event.preventDefault();
    const form = event.target;
    run(() => work(Object.fromEntries(new FormData(form)), form));
  });
}

onSubmit('login', async (fields, form) => {
  const answer = await call('POST', 'login', fields);
  token = answer.accessToken;
  form.hidden = true;
  showTodos(answer.todos);
});

onSubmit('create', async (fields, form) => {
  await call('POST', 'todos', fields);
  form.reset();
  await refresh();
});
