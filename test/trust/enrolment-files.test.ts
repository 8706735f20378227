import assert from 'node:assert/strict'
import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { MAX_ENROL_KEYS } from '../../src/protocol/limits/enrolment.ts'
import { type EnrolKey, EnrolmentKeys, enrolKeysOf } from '../../src/trust/enrolment-keys.ts'
import { loadEnrolment, saveEnrolment } from '../../src/trust/pending-enrolment.ts'
import { mutations } from '../support/mutations.ts'
import { tempDir } from '../support/temp-dir.ts'

const NOW = 1_800_000_000_000
const keyOf = (id: number): EnrolKey => ({
  id: id.toString(16).padStart(16, '0'),
  secret: 'ab'.repeat(20),
  created_at_ms: NOW,
  expires_at_ms: NOW + 1_000,
  uses: 2,
  names: 'web[1-2]',
  labels: { role: 'web' },
  operator_name: 'ops',
  acl: '',
  revoked: false,
  hosts: [
    { name: 'web1', agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64), attempt: 'c'.repeat(32), granted_at_ms: NOW, confirmed: true },
  ],
})

const isBad = (error: unknown): boolean => isAppError(error, 'bad_enrolment')

test('keys are on disk, with private permissions, before a change is confirmed, and the next start reads them', async (t) => {
  const path = join(await tempDir(t), 'enrol-keys.json')
  const keys = new EnrolmentKeys({ path })
  await keys.load()
  await keys.add(keyOf(1), NOW)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  await keys.revoke(keyOf(1).id)
  const next = new EnrolmentKeys({ path })
  await next.load()
  assert.deepEqual(next.list(), [{ ...keyOf(1), revoked: true }])
  await chmod(path, 0o644)
  await assert.rejects(new EnrolmentKeys({ path }).load(), (error) => isAppError(error, 'loose_permissions'))
})

test('simultaneous changes of keys run one after another, each on the result of the last', async (t) => {
  const keys = new EnrolmentKeys({ path: join(await tempDir(t), 'enrol-keys.json') })
  await keys.add({ ...keyOf(1), uses: 0, hosts: [] }, NOW)
  const more = async (): Promise<number> =>
    keys.change(([key]) => {
      const next = { ...key!, uses: key!.uses + 1 }
      return { keys: [next], result: next.uses }
    })
  const results = await Promise.all(Array.from({ length: 20 }, more))
  assert.deepEqual(
    results,
    Array.from({ length: 20 }, (_, index) => index + 1),
  )
})

test('a new key replaces the oldest ended one, and never a valid one', async (t) => {
  const keys = new EnrolmentKeys({ path: join(await tempDir(t), 'enrol-keys.json') })
  for (let id = 0; id < MAX_ENROL_KEYS; id++) await keys.add(keyOf(id), NOW)
  await assert.rejects(keys.add(keyOf(100), NOW), (error) => isAppError(error, 'conflict') && /revoke one first/.test(error.message))
  await keys.revoke(keyOf(3).id)
  await keys.add(keyOf(100), NOW)
  assert.ok(!keys.list().some(({ id }) => id === keyOf(3).id))
  await assert.rejects(keys.add(keyOf(100), NOW + 10_000), (error) => isAppError(error, 'conflict'))
})

test('a changed file of keys is refused, or has the same meaning in another form', () => {
  const file = { version: 1, keys: [keyOf(1)] }
  assert.deepEqual(enrolKeysOf(structuredClone(file), 'f'), [keyOf(1)])
  for (const [at, other] of mutations(file, '')) {
    let taken: EnrolKey[] | null = null
    try {
      taken = enrolKeysOf(other, 'f')
    } catch (error) {
      assert.ok(isBad(error), `${at}: ${String(error)}`)
    }
    // Names, texts and times may have any value.
    if (taken !== null)
      assert.match(
        at,
        /\.(name|names|operator_name|acl|uses|revoked|confirmed|\w+_at_ms|role|keys|hosts|agent_id|machine_id|attempt|id|secret)$/,
        at,
      )
  }
})

test('a pending enrolment is read as written, and any other file is refused', async (t) => {
  const path = join(await tempDir(t), 'enrolment.json')
  assert.equal(await loadEnrolment(path), null)
  const pending = { state: 'pending', token: 'x0xe1.AAAA', token_sha256: 'a', name: 'web1', append: true, attempt: null } as const
  await saveEnrolment(path, pending)
  assert.deepEqual(await loadEnrolment(path), pending)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  const file = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown>
  for (const wrong of [
    { state: 'other' },
    { token: null },
    { attempt: 'ab' },
    { append: 'yes' },
    { name: 1 },
    { more: 1 },
    { version: 2 },
    { state: 'written' },
  ]) {
    await writeFile(path, JSON.stringify({ ...file, ...wrong }), { mode: 0o600 })
    await assert.rejects(loadEnrolment(path), isBad, JSON.stringify(wrong))
  }
})
