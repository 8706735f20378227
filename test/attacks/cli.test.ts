import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test, type TestContext } from 'node:test'

import { main } from '../../src/programs/x0x/main.ts'
import { OPERATOR_KEY_FILE } from '../../src/identity/operator-proof.ts'

const TOKEN = 'a'.repeat(64)

/** A foreign server that answers every request with success, and the requests that it received. */
const listener = async (t: TestContext, answer: object = { ok: true }): Promise<{ port: number; heard: IncomingMessage[] }> => {
  const heard: IncomingMessage[] = []
  const server = createServer((request, response) => {
    heard.push(request)
    request.resume()
    response.setHeader('content-type', 'application/json').end(JSON.stringify(answer))
  }).listen(0, '0.0.0.0')
  t.after(() => server.close())
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, heard }
}

/** A data directory with its secrets but without a daemon. */
const dataDir = async (t: TestContext): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-cli-'))
  t.after(() => rm(dir, { recursive: true }))
  await writeFile(join(dir, 'api-token'), `${TOKEN}\n`, { mode: 0o600 })
  await writeFile(join(dir, OPERATOR_KEY_FILE), `${'b'.repeat(64)}\n`, { mode: 0o600 })
  return dir
}

const x0x = async (argv: readonly string[], env: Record<string, string> = {}): Promise<{ status: number; out: string; err: string }> => {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const status = await main(argv, env, { stdin, stdout, stderr, onSignal: () => () => undefined })
  return { status, out: String(stdout.read() ?? ''), err: String(stderr.read() ?? '') }
}

test('the token file is sent to loopback only, and another host gets only a token that the user names', async (t) => {
  const [dir, { port, heard }] = [await dataDir(t), await listener(t, { agent_id: 'x' })]
  // 0.0.0.0 also reaches this machine, but it is not a loopback name.
  const [near, far] = [`http://127.0.0.1:${port}`, `http://0.0.0.0:${port}`]
  for (const [url, env] of [[near], [far], [far, { X0X_API_TOKEN: 'named' }]] as const) {
    await x0x(['--data-dir', dir, '--api', url, 'id'], env)
  }
  assert.deepEqual(
    heard.map(({ headers }) => headers.authorization),
    [`Bearer ${TOKEN}`, undefined, 'Bearer named'],
  )
})

test('an operator proof is not sent to another host', async (t) => {
  const [dir, { port, heard }] = [await dataDir(t), await listener(t)]
  const command = ['contacts', 'trust', 'bob', 'trusted']
  const { status, err } = await x0x(['--data-dir', dir, '--api', `http://0.0.0.0:${port}`, ...command], { X0X_API_TOKEN: 'named' })
  assert.equal(status, 1)
  assert.match(err, /on the machine of the daemon/)
  assert.equal(heard.length, 0)
  await x0x(['--data-dir', dir, '--api', `http://127.0.0.1:${port}`, ...command])
  assert.match(String(heard[0]?.headers['x-x0x-operator-proof']), /^v1\./)
})

test('a server that took the port of a dead daemon receives no request from the CLI', async (t) => {
  const [dir, { port, heard }] = [await dataDir(t), await listener(t)]
  await writeFile(join(dir, 'api.port'), `127.0.0.1:${port}\n`)
  const { status, err } = await x0x(['--data-dir', dir, 'id'])
  assert.equal(status, 255)
  assert.match(err, /cannot connect to x0xd \(daemon_unreachable\): .*api\.sock: not running/)
  assert.equal(heard.length, 0)
})

test('output of the CLI cannot steer the terminal with text from a daemon or peer, even as JSON', async (t) => {
  const dir = await dataDir(t)
  const evil = 'a\u001b[2J\u009b2J\u007f\u202ex'
  const contact = { name: evil, agent_id: 'a'.repeat(64), trust: 'known', machines: [], addresses: [evil], formerly: [], labels: {} }
  const answer = { ok: true, groups: [], contacts: [{ ...contact, revoked: false, revoked_machines: [] }] }
  const { port } = await listener(t, answer)
  const api = ['--data-dir', dir, '--api', `http://127.0.0.1:${port}`]
  // oxlint-disable-next-line no-control-regex
  const steering = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e]/
  const { out } = await x0x([...api, 'contacts', 'list'])
  assert.match(out, /\\x1b\[2J/)
  assert.doesNotMatch(out, steering)
  const json = await x0x([...api, '--json', 'contacts', 'list'])
  assert.doesNotMatch(json.out, steering)
  assert.equal((JSON.parse(json.out) as { contacts: { name: string }[] }).contacts[0]?.name, evil)
  const wrong = await listener(t, { ...answer, contacts: [{ name: evil, agent_id: evil, trust: evil, machines: [evil] }] })
  const refused = await x0x(['--data-dir', dir, '--api', `http://127.0.0.1:${wrong.port}`, 'contacts', 'list'])
  assert.notEqual(refused.status, 0)
  assert.doesNotMatch(refused.out + refused.err, steering)
  const server = createServer((_request, response) =>
    response.writeHead(404, { 'content-type': 'application/json' }).end(JSON.stringify({ ok: false, error: 'not_found', message: evil })),
  ).listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  const failing = ['--data-dir', dir, '--api', `http://127.0.0.1:${(server.address() as AddressInfo).port}`]
  for (const flags of [[], ['--json']]) {
    const failed = await x0x([...failing, ...flags, 'id'])
    assert.doesNotMatch(failed.out, steering)
    assert.doesNotMatch(failed.err, steering)
  }
})

test('a journal with control characters cannot steer the terminal, in text or as JSON', async (t) => {
  const dir = await dataDir(t)
  const file = join(dir, 'exec.log')
  await writeFile(file, '\u001b]0;owned\u0007 \u009b2J {"ts":"x"}\n')
  for (const flags of [[], ['--json']]) {
    const { out } = await x0x([...flags, 'audit', 'tail', file])
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(out, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/)
  }
})

test('false answers of a daemon cannot steer the terminal or make a failure look like success', async (t) => {
  const dir = await dataDir(t)
  const exit = { type: 'exit', ok: true, request_id: 'r', agent_id: 'a', machine_id: 'm', code: 0, signal: null, duration_ms: 1 }
  const whole = {
    ...exit,
    stdout_bytes_total: 0,
    stderr_bytes_total: 0,
    truncated: false,
    incomplete: false,
    denial_reason: null,
    warnings: [],
  }
  const obeyed = '\u001b]0;owned\u001b\\\u001b[2J'
  const lies: object[][] = [
    [{ type: 'warning', request_id: 'r', kind: obeyed, message: obeyed }, whole],
    [{ ...whole, code: 256 }],
    [{ ...whole, code: null, signal: 128 }],
    [{ ...whole, code: null, denial_reason: '__proto__' }],
    [{ ...whole, code: null, denial_reason: 'not_known_here' }],
  ]
  for (const lines of lies) {
    const server = createServer((request, response) => {
      request.resume()
      response.setHeader('content-type', 'application/vnd.x0x.run').end(lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const { status, err } = await x0x(['--data-dir', dir, '--api', `http://127.0.0.1:${port}`, 'exec', 'bob', '--', 'ls'])
    server.close()
    assert.equal(status, 255, err)
    assert.ok(!err.includes('\u001b'), JSON.stringify(err))
    assert.doesNotMatch(err, /TypeError|undefined/)
  }
})
