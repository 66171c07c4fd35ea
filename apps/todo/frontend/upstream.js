'use strict';

const http = require('node:http');

// The log may be asked to wait for an entry, for ten seconds at most.
const PATIENCE_MS = 15_000;
const MAX_ANSWER = 4 * 1024 * 1024;

/** A service behind this one. */
class Upstream {
  #name;
  #url;
  #agent = new http.Agent({ keepAlive: true });

  constructor(name, url) {
    this.#name = name;
    this.#url = url;
  }

  /** Sends a request with a JSON body and reads the JSON answer: `{ status, body }`. */
  async call(method, target, { authorization, body } = {}) {
    const headers = { accept: 'application/json' };
    if (authorization) headers.authorization = authorization;
    const text = body === undefined ? '' : JSON.stringify(body);
    if (text !== '') {
      headers['content-type'] = 'application/json';
      headers['content-length'] = Buffer.byteLength(text);
    }
    try {
      const response = await this.#send(method, target, headers, text);
      return { status: response.statusCode, body: parse(await read(response)) };
    } catch (error) {
      throw Object.assign(new Error(`${this.#name}: ${error.message}`), { status: 502 });
    }
  }

  #send(method, target, headers, text) {
    return new Promise((resolve, reject) => {
      const options = { method, headers, agent: this.#agent, timeout: PATIENCE_MS };
      const request = http.request(new URL(target, this.#url), options, resolve);
      request.on('error', reject);
      request.on('timeout', () => request.destroy(new Error('no answer in time')));
      request.end(text);
    });
  }
}

async function read(response) {
  let size = 0;
  const parts = [];
  for await (const part of response) {
    size += part.length;
    if (size > MAX_ANSWER) throw new Error('the answer is too long');
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

function parse(text) {
  return text === '' ? undefined : JSON.parse(text);
}

module.exports = { Upstream };
