import assert from 'node:assert/strict'
import { chmod, mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { AppError, isAppError, type ErrorCode } from '../../src/base/errors.ts'
import { revocation, revocationBody, REVOCATION_DOMAIN } from '../../src/protocol/wire/dm.ts'
import { MAX_CARD_BYTES } from '../../src/protocol/limits/wire.ts'
import { Revocations, signRevocation, MAX_REVOKED_MACHINES } from '../../src/trust/revocations.ts'
import { agentNumber } from '../support/agents.ts'
import { tempDir } from '../support/temp-dir.ts'

const alice = agentNumber(1)
const bob = agentNumber(2)
const MACHINE = '0c'.repeat(32)
const OTHER = '0d'.repeat(32)
const NOW = 1_800_000_000_000
const everybody = (): boolean => true
const isMalformed = (error: unknown): boolean => isAppError(error, 'malformed')

const open = async (t: TestContext) => {
  const path = join(await tempDir(t), 'revocations.json')
  const again = async (): Promise<Revocations> => {
    const revocations = new Revocations({ path })
    await revocations.load()
    return revocations
  }
  return { revocations: await again(), path, again }
}

const refused = (code: ErrorCode, reason: RegExp) => (error: unknown) => {
  assert.ok(error instanceof AppError)
  assert.equal(error.code, code)
  assert.match(error.message, reason)
  return true
}

test('an agent that revokes its key is revoked on every machine, even after a restart', async (t) => {
  const { revocations, path, again } = await open(t)
  const statement = await signRevocation(alice, null, NOW)
  assert.equal(revocations.isRevoked(alice.agentId, MACHINE), false)
  assert.equal(await revocations.add(statement, everybody), 'added')
  for (const known of [revocations, await again()]) {
    assert.equal(known.isRevoked(alice.agentId, MACHINE), true)
    assert.equal(known.isRevoked(bob.agentId, MACHINE), false)
    assert.deepEqual(known.agents(), [alice.agentId])
    assert.deepEqual(
      known.list().map(({ bytes }) => Buffer.from(bytes).toString('hex')),
      [Buffer.from(statement).toString('hex')],
    )
  }
  assert.equal((await stat(path)).mode & 0o777, 0o600)
})

test('an agent that revokes one machine is revoked only on that machine', async (t) => {
  const { revocations, again } = await open(t)
  await revocations.add(await signRevocation(alice, MACHINE, NOW), everybody)
  for (const known of [revocations, await again()]) {
    assert.equal(known.isRevoked(alice.agentId, MACHINE), true)
    assert.equal(known.isRevoked(alice.agentId, OTHER), false)
    assert.equal(known.isRevoked(bob.agentId, MACHINE), false)
    assert.deepEqual(known.agents(), [])
  }
})

test('a revocation takes effect at once, before it is on disk', async (t) => {
  const { revocations } = await open(t)
  const added = revocations.add(await signRevocation(alice, MACHINE, NOW), everybody)
  assert.equal(revocations.isRevoked(alice.agentId, MACHINE), true)
  assert.equal(await added, 'added')
})

test('a statement without new information counts as known', async (t) => {
  const { revocations, path } = await open(t)
  await revocations.add(await signRevocation(alice, MACHINE, NOW), everybody)
  assert.equal(await revocations.add(await signRevocation(alice, MACHINE, NOW + 1), everybody), 'known')
  assert.equal(await revocations.add(await signRevocation(alice, null, NOW), everybody), 'added')
  assert.equal(revocations.list().length, 1, 'the word about the key makes the other superfluous')
  const before = await readFile(path, 'utf8')
  assert.equal(await revocations.add(await signRevocation(alice, null, NOW + 1), everybody), 'known')
  assert.equal(await revocations.add(await signRevocation(alice, OTHER, NOW), everybody), 'known')
  assert.equal(await readFile(path, 'utf8'), before)
})

test('statements are listed in order of the latest statement of their agent', async (t) => {
  const { revocations, again } = await open(t)
  await revocations.add(await signRevocation(alice, MACHINE, NOW), everybody)
  await revocations.add(await signRevocation(bob, MACHINE, NOW + 1), everybody)
  await revocations.add(await signRevocation(alice, OTHER, NOW + 2), everybody)
  for (const known of [revocations, await again()])
    assert.deepEqual(
      known.list().map(({ agentId, machineId }) => [agentId, machineId]),
      [
        [bob.agentId, MACHINE],
        [alice.agentId, MACHINE],
        [alice.agentId, OTHER],
      ],
    )
})

test('a statement about an irrelevant agent is not kept', async (t) => {
  const { revocations, path } = await open(t)
  const aboutBobOnly = (agentId: string): boolean => agentId === bob.agentId
  assert.equal(await revocations.add(await signRevocation(alice, null, NOW), aboutBobOnly), 'irrelevant')
  assert.equal(revocations.isRevoked(alice.agentId, MACHINE), false)
  await assert.rejects(stat(path), { code: 'ENOENT' })
  assert.equal(await revocations.add(await signRevocation(bob, null, NOW), aboutBobOnly), 'added')
})

test('an agent cannot revoke the key of another agent', async (t) => {
  const { revocations } = await open(t)
  const body = revocationBody.encode({ version: 1, agent_public_key: bob.publicKey, machine_id: null, issued_at_ms: NOW })
  const forged = revocation.encode({ body, signature: await alice.sign(REVOCATION_DOMAIN, body) })
  await assert.rejects(revocations.add(forged, everybody), isMalformed)
  const otherDomain = revocation.encode({ body, signature: await bob.sign('x0x-card-v1', body) })
  await assert.rejects(revocations.add(otherDomain, everybody), isMalformed)
  assert.equal(revocations.isRevoked(bob.agentId, MACHINE), false)
})

test('property: altered statements are malformed and leave no trace', async (t) => {
  const { revocations } = await open(t)
  const statement = await signRevocation(alice, MACHINE, NOW)
  await fc.assert(
    fc.asyncProperty(fc.nat(statement.length - 1), fc.nat(255), async (at, value) => {
      if (statement[at] === value) return
      const altered = new Uint8Array(statement)
      altered[at] = value
      await assert.rejects(revocations.add(altered, everybody), isMalformed)
    }),
    { seed: 11, numRuns: 200 },
  )
  for (const bytes of [
    new Uint8Array(0),
    statement.subarray(1),
    Buffer.concat([statement, Uint8Array.of(0)]),
    new Uint8Array(MAX_CARD_BYTES + 1),
  ])
    await assert.rejects(revocations.add(bytes, everybody), isMalformed)
  assert.deepEqual(revocations.list(), [])
})

test('the caller may reuse its buffer', async (t) => {
  const { revocations, again } = await open(t)
  const buffer = Buffer.from(await signRevocation(alice, null, NOW))
  await revocations.add(buffer, everybody)
  buffer.fill(0)
  await revocations.add(await signRevocation(bob, null, NOW), everybody)
  assert.equal((await again()).isRevoked(alice.agentId, MACHINE), true)
})

test('an agent that revokes more machines than the limit counts as revoked on every machine', async (t) => {
  const { revocations, again } = await open(t)
  const statements = await Promise.all(
    Array.from({ length: MAX_REVOKED_MACHINES + 2 }, (_, index) => signRevocation(alice, index.toString(16).padStart(64, '0'), NOW)),
  )
  const elsewhere = 'ff'.repeat(32)
  const results = []
  for (const statement of statements.slice(0, MAX_REVOKED_MACHINES)) results.push(await revocations.add(statement, everybody))
  assert.ok(results.every((result) => result === 'added'))
  assert.equal(revocations.isRevoked(alice.agentId, elsewhere), false)
  assert.equal(await revocations.add(statements.at(-2)!, everybody), 'added')
  assert.equal(revocations.isRevoked(alice.agentId, elsewhere), true)
  assert.equal(await revocations.add(statements.at(-1)!, everybody), 'known')
  assert.equal((await again()).isRevoked(alice.agentId, elsewhere), true)
  assert.equal(revocations.list().length, MAX_REVOKED_MACHINES + 1)
})

test('a revocation that could not be written takes effect, and the next write includes it', async (t) => {
  const { revocations, path, again } = await open(t)
  const directory = join(path, '..')
  await rm(directory, { recursive: true })
  const statement = await signRevocation(alice, null, NOW)
  await assert.rejects(revocations.add(statement, everybody), { code: 'ENOENT' })
  assert.equal(revocations.isRevoked(alice.agentId, MACHINE), true)
  await mkdir(directory, { mode: 0o700 })
  assert.equal(await revocations.add(statement, everybody), 'known')
  assert.equal((await again()).isRevoked(alice.agentId, MACHINE), true)
})

test('simultaneous statements are all kept', async (t) => {
  const { revocations, again } = await open(t)
  const agents = [3, 4, 5, 6].map(agentNumber)
  const statements = await Promise.all(agents.map((agent) => signRevocation(agent, null, NOW)))
  await Promise.all(statements.map((statement) => revocations.add(statement, everybody)))
  assert.deepEqual((await again()).agents().toSorted(), agents.map(({ agentId }) => agentId).toSorted())
})

test('an invalid revocations file stops the start', async (t) => {
  const { revocations, path, again } = await open(t)
  await revocations.add(await signRevocation(alice, null, NOW), everybody)
  const { revocations: list } = JSON.parse(await readFile(path, 'utf8')) as { revocations: [string] }
  const altered = Buffer.from(list[0], 'base64url')
  altered[altered.length - 1]! ^= 1
  const file = (value: object): string => JSON.stringify({ version: 1, revocations: list, ...value })
  const cases: [string, RegExp][] = [
    ['', /revocations\.json/],
    ['{"version": 1', /revocations\.json:1:14: /],
    [file({ version: 2 }), /version: version 2 is from a later x0x/],
    [file({ more: [] }), /more: unknown key/],
    [file({ revocations: null }), /revocations: expected a list/],
    [file({ revocations: [...list, 7] }), /revocations\[1\]: expected a text/],
    [file({ revocations: [`${list[0]}=`] }), /revocations\[0\]: expected base64url/],
    [file({ revocations: ['AAAA'] }), /revocations\[0\]: /],
    [file({ revocations: [altered.toString('base64url')] }), /revocations\[0\]: .*did not sign/],
  ]
  for (const [text, reason] of cases) {
    await writeFile(path, text, { mode: 0o600 })
    await assert.rejects(again(), refused('bad_revocations', reason), text.slice(0, 60))
  }
  await writeFile(path, file({}))
  await chmod(path, 0o660)
  await assert.rejects(again(), refused('loose_permissions', /chmod/))
})
