import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { aliceBobCharlie, MeshOfDaemons, type JournalLineJson, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { readAnswer, response, type Answer } from '../test/support/rest-server.ts'
import { rexdPlace } from '../test/support/rexd-server.ts'

// Alice accepts requests of her clients only with an operator proof. Bob runs the commands that she requests.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob } = await aliceBobCharlie(mesh, [['echo', '<INT>'], ['sha256sum']]))
  await writeFile(join(alice.dir, 'config.toml'), 'require_operator_proof = true\n', { mode: 0o600 })
  await alice.restart()
})

after(async () => mesh.stop())

const asked = async (daemon: TestDaemon): Promise<JournalLineJson[]> => {
  const text = await readFile(join(daemon.dir, 'requests.jsonl'), 'utf8').catch(() => '')
  return text
    .split('\n')
    .flatMap((line) => (line === '' ? [] : [JSON.parse(line) as JournalLineJson]))
    .filter(({ event }) => event === 'asked')
}

/** Sends a request as a program that has only the bearer token. */
const withToken = async (daemon: TestDaemon, path: string, body: string, type = 'application/json'): Promise<Answer> => {
  const token = (await readFile(join(daemon.dir, 'api-token'), 'utf8')).trim()
  const headers = { authorization: `Bearer ${token}`, 'content-type': type }
  const request = httpRequest({ host: '127.0.0.1', port: daemon.apiPort, method: 'POST', path, agent: false, headers })
  request.end(body)
  return readAnswer(await response(request))
}

const sum = (bytes: Uint8Array): string => `${createHash('sha256').update(bytes).digest('hex')}  -\n`

test('a request with only the token is refused with operator_proof_required and never reaches the target', async () => {
  const before = (await bob.diagnostics()).totals['requests_received']
  const object = JSON.stringify({ agent: 'bob', argv: ['echo', '1'] })
  for (const [body, type] of [
    [object, 'application/json'],
    [`${object}\n{"stdin_b64":"YQ=="}\n`, 'application/x-ndjson'],
  ] as const) {
    const { status, json } = await withToken(alice, '/exec/run', body, type)
    assert.deepEqual([status, json.ok, json.error], [403, false, 'operator_proof_required'])
    assert.match(json.message, /require_operator_proof/)
  }
  assert.equal((await bob.diagnostics()).totals['requests_received'], before)
  assert.deepEqual(await asked(alice), [])
})

test('the command line sends a valid operator proof with every kind of stdin and with an ID prefix', async () => {
  const payload = randomBytes(3_000_000)
  const file = join(mesh.root, 'payload')
  await writeFile(file, payload)
  assert.equal((await alice.exec(bob, ['echo', '42'])).stdout.toString(), '42\n')
  assert.equal((await alice.exec(bob.agentId.slice(0, 8), ['echo', '43'])).stdout.toString(), '43\n')
  const small = payload.subarray(0, 700_000)
  await writeFile(file, small)
  const fromFile = await alice.exec(bob, ['sha256sum'], ['--stdin-file', file])
  assert.equal(fromFile.stdout.toString(), sum(small), fromFile.stderr)
  const fromPipe = await alice.exec(bob, ['sha256sum'], ['--stdin-file', '-'], { stdin: small })
  assert.equal(fromPipe.stdout.toString(), sum(small), fromPipe.stderr)
  const lines = await asked(alice)
  assert.deepEqual(
    lines.map(({ event, agent_id, machine_id, argv, stdin_bytes, proven }) => [event, agent_id, machine_id, argv, stdin_bytes, proven]),
    [
      [['echo', '42'], 0],
      [['echo', '43'], 0],
      [['sha256sum'], 700_000],
      [['sha256sum'], 700_000],
    ].map(([argv, bytes]) => ['asked', bob.agentId, bob.machineId, argv, bytes, true]),
  )
  // The audit log of the target has the same requests.
  const there = new Set((await bob.journal()).map(({ request_id }) => request_id))
  for (const { request_id } of lines) assert.ok(there.has(request_id))
})

test('rexd adds an operator proof to requests of its clients only with targets_as_operator = true', async (t) => {
  const REXD = join(import.meta.dirname, '../dist/rexd.mjs')
  const ask = async (security: string) => {
    const { config } = await rexdPlace(t, { security })
    const argv = [REXD, 'exec', '--config', config, '--target', 'bob', '--', 'echo', '7']
    return spawnSync(process.execPath, argv, { encoding: 'utf8', env: { ...process.env, X0X_DATA_DIR: alice.dir } })
  }
  const before = (await asked(alice)).length
  const refused = await ask('allow_targets = ["bob"]')
  assert.notEqual(refused.status, 0)
  assert.match(refused.stderr, /require_operator_proof.*targets_as_operator = true/)
  assert.equal((await asked(alice)).length, before)
  const taken = await ask('allow_targets = ["bob"]\ntargets_as_operator = true')
  assert.deepEqual([taken.status, taken.stdout], [0, '7\n'], taken.stderr)
  assert.deepEqual(
    (await asked(alice)).slice(before).map(({ argv, proven }) => [argv, proven]),
    [[['echo', '7'], true]],
  )
})
