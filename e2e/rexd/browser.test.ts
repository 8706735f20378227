import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { promisify } from 'node:util'

import { startRexd, type RexdServer } from '../../test/support/rexd-server.ts'
import { tempDir } from '../../test/support/temp-dir.ts'

// What a page gets from a real browser's network stack: its Origin, its preflights, its subprotocols.

const CHROMIUM = '/usr/bin/chromium'
const without = existsSync(CHROMIUM) ? '' : ` (skipped: no ${CHROMIUM})`
const BROWSER = { timeout: 60_000, skip: without !== '' }
/** A name that leads here, as a name server of somebody else's may say. */
const REBOUND = 'rebound.example'
const FLAGS = [
  ...'--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking'.split(' '),
  ...'--disable-component-update --disable-sync --disable-dev-shm-usage'.split(' '),
  `--host-resolver-rules=MAP ${REBOUND} 127.0.0.1`,
]

/** Runs in the page: `url` and `token` are written in front of it. Whatever happens it is done after its deadline. */
const ATTEMPTS = `
const question = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'session.open', params: { client_name: 'page' } })
const asked = (init) => fetch(url + '/rpc', { method: 'POST', body: question, ...init })
  .then(async (answer) => answer.type + ' ' + answer.status + ' ' + await answer.text(), () => 'refused')
const command = { argv: ['echo', 'hello from a page'] }
const socket = (protocols) => new Promise((resolve) => {
  const ws = new WebSocket(url.replace('http', 'ws') + '/ws', protocols)
  ws.onerror = () => resolve('refused')
  ws.onopen = () => ws.send(question)
  ws.onmessage = ({ data }) => {
    const { id, result, method, params } = JSON.parse(data)
    if (id === 1) ws.send(JSON.stringify({ jsonrpc: '2.0', id: 2, method: 'exec.start', params: { session_id: result.session_id, ...command } }))
    if (method === 'exec.stdout') resolve(params.data.trim())
  }
})
const frame = () => new Promise((resolve) => {
  const inner = document.createElement('iframe')
  inner.sandbox = 'allow-scripts'
  inner.srcdoc = '<script>const ws = new WebSocket("' + url.replace('http', 'ws') + '/ws", ["rexd.1", "bearer.' + token + '"]);'
    + 'ws.onerror = () => parent.postMessage("refused", "*"); ws.onopen = () => parent.postMessage("open", "*")</' + 'script>'
  addEventListener('message', ({ data }) => resolve(data))
  document.body.append(inner)
})
const bearer = { authorization: 'Bearer ' + token }
const attempts = {
  simple: () => asked({ headers: { 'content-type': 'text/plain' } }),
  opaque: () => asked({ mode: 'no-cors', headers: { 'content-type': 'text/plain' } }),
  json: () => asked({ headers: { 'content-type': 'application/json' } }),
  headers: () => asked({ headers: { 'content-type': 'application/json', ...bearer } }),
  socket: () => socket(['rexd.1', 'bearer.' + token]),
  bare: () => socket([]),
  frame,
}
const late = new Promise((resolve) => setTimeout(() => resolve('late'), 15000))
const one = async ([name, attempt]) => [name, await Promise.race([attempt(), late])]
Promise.all(Object.entries(attempts).map(one)).then((results) => {
  document.querySelector('pre').textContent = JSON.stringify(Object.fromEntries(results))
  return fetch('/done', { method: 'POST' })
})`

interface Attempts {
  readonly [name: string]: string
}

/** A site of its own. Its page counts as loaded when it says that it is done: then the browser shows what became of it. */
class Site {
  readonly #server = createServer((request, response) => this.#answer(request, response))
  readonly #done = Promise.withResolvers<void>()
  #page = ''

  async listen(t: TestContext): Promise<void> {
    t.after(() => {
      this.#server.close()
      this.#server.closeAllConnections()
    })
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  /** Shows the page under a name of this site; it tries what a page can to reach `url`. */
  async show(t: TestContext, name: string, target: { url: string; token: string }): Promise<Attempts> {
    const { url, token } = target
    const script = `const url = ${JSON.stringify(url)}, token = ${JSON.stringify(token)}\n${ATTEMPTS}`
    this.#page = `<!doctype html><body><pre></pre><img src="/loaded"><script>${script}</script></body>`
    const profile = await tempDir(t)
    const argv = [...FLAGS, `--user-data-dir=${profile}`, '--dump-dom', `http://${name}:${this.port}/`]
    const { stdout } = await promisify(execFile)(CHROMIUM, argv, {
      timeout: 45_000,
      killSignal: 'SIGKILL',
      env: { ...process.env, HOME: profile },
    })
    return JSON.parse(/<pre>(.*)<\/pre>/.exec(stdout)?.[1] ?? '{}') as Attempts
  }

  #answer({ url }: IncomingMessage, response: ServerResponse): void {
    if (url === '/') response.setHeader('content-type', 'text/html').end(this.#page)
    else if (url === '/loaded') void this.#done.promise.then(() => response.writeHead(404).end())
    else {
      response.end()
      if (url === '/done') this.#done.resolve()
    }
  }
}

const site = async (t: TestContext): Promise<Site> => {
  const made = new Site()
  await made.listen(t)
  return made
}

/** Whether anybody has had a session. */
const sessions = async ({ dir }: RexdServer): Promise<number> =>
  (await readFile(join(dir, 'log', 'audit.log'), 'utf8')).split('\n').filter((line) => line.includes('"opened"')).length

const REFUSED = {
  simple: 'refused',
  json: 'refused',
  headers: 'refused',
  socket: 'refused',
  bare: 'refused',
  frame: 'refused',
  // The browser does not show what the answer was.
  opaque: 'opaque 0 ',
}

test(`a page of another site gets nothing done, with the token neither${without}`, BROWSER, async (t) => {
  const [server, foreign] = [await startRexd(t), await site(t)]
  assert.deepEqual(await foreign.show(t, '127.0.0.1', server), REFUSED)
  assert.equal(await sessions(server), 0)
})

test(`a page of an allowed origin runs commands over a WebSocket, and only there${without}`, BROWSER, async (t) => {
  const own = await site(t)
  const server = await startRexd(t, { server: `allowed_origins = ["http://127.0.0.1:${own.port}"]` })
  assert.deepEqual(await own.show(t, '127.0.0.1', server), { ...REFUSED, socket: 'hello from a page' })
  assert.equal(await sessions(server), 1)
})

test(`a page does not reach it by a name of its own that leads here${without}`, BROWSER, async (t) => {
  const rebound = await site(t)
  const server = await startRexd(t, { server: `allowed_origins = ["http://${REBOUND}:${rebound.port}"]` })
  const url = server.url.replace('127.0.0.1', REBOUND)
  assert.deepEqual(await rebound.show(t, REBOUND, { url, token: server.token }), REFUSED)
  assert.equal(await sessions(server), 0)
})
