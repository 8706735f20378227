import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { startRexd, type RexdServer } from '../../test/support/rexd-server.ts'

// One thread serves all clients. These tests measure what the worst request of one client costs the others, by the order of events and not
// by time.

const MiB = 1024 * 1024
/** Number of calls of another client that must be answered during the worst call of the first. A blocked server answers one after it. */
const ANSWERED = 5

interface Answer {
  readonly result?: Record<string, unknown>
  readonly error?: { readonly code: number; readonly data: Record<string, unknown> }
}

const call = async ({ url, token }: RexdServer, method: string, params: object): Promise<Answer> => {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const response = await fetch(`${url}/rpc`, { method: 'POST', headers, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }) })
  return (await response.json()) as Answer
}

const opened = async (server: RexdServer, fields: object = {}): Promise<string> => {
  const { result } = await call(server, 'session.open', { client_name: 'caller', ...fields })
  return String(result?.['session_id'])
}

const scene = async (t: TestContext) => {
  const server = await startRexd(t)
  return { server, mine: await opened(server), other: await opened(server) }
}

/** Counts the answers that another client gets until the work is done. */
const answeredDuring = async (server: RexdServer, session_id: string, work: Promise<unknown>): Promise<number> => {
  const state = { isOver: false }
  void work.finally(() => (state.isOver = true))
  let count = 0
  while (!state.isOver) {
    const { result } = await call(server, 'fs.stat', { session_id, path: '.' })
    assert.equal(result?.['exists'], true)
    if (!state.isOver) count += 1
  }
  return count
}

/** File names and a pattern that almost match in a hundred ways. */
const worstGlob = (root: string): string => {
  for (let i = 0; i < 300; i++) writeFileSync(join(root, 'a'.repeat(245) + String(i).padStart(5, '0')), '')
  return `*${'a'.repeat(127)}{${Array.from({ length: 125 }, (_, i) => String.fromCharCode(0x4e00 + i)).join(',')}}`
}

test('a text that is crafted to make a search slow does not block other clients', async (t) => {
  const { server, mine, other } = await scene(t)
  const edits = Array.from({ length: 8 }, (_, i) => {
    writeFileSync(join(server.root, `f${i}`), Buffer.alloc(16 * MiB, 'a'))
    const params = { session_id: mine, path: `f${i}`, old_string: `ab${'a'.repeat(MiB)}`, new_string: 'x' }
    return call(server, 'fs.edit', params)
  })
  const work = Promise.all(edits)
  const answered = await answeredDuring(server, other, work)
  for (const { error } of await work) assert.equal(error?.data['reason'], 'no_match')
  assert.ok(answered >= ANSWERED, `${answered} answers`)
})

test('a patch that is crafted to make a search slow does not block other clients', async (t) => {
  const { server, mine, other } = await scene(t)
  const hunks = Array.from({ length: 50 }, () => `@@\n-a`).join('\n')
  const patches = Array.from({ length: 4 }, (_, i) => {
    writeFileSync(join(server.root, `f${i}`), 'a\n'.repeat(900_000))
    const patch_text = `*** Begin Patch\n*** Update File: f${i}\n${hunks}\n@@\n${' a\n'.repeat(100_000)}-b\n*** End Patch`
    return call(server, 'fs.patch', { session_id: mine, patch_text })
  })
  const work = Promise.all(patches)
  const answered = await answeredDuring(server, other, work)
  for (const { error } of await work) assert.equal(error?.data['reason'], 'no_match')
  assert.ok(answered >= ANSWERED, `${answered} answers`)
})

test('a pattern that is crafted to make matching slow does not block other clients, and its search ends', async (t) => {
  const { server, mine, other } = await scene(t)
  const pattern = worstGlob(server.root)
  const work = call(server, 'fs.glob', { session_id: mine, pattern })
  const answered = await answeredDuring(server, other, work)
  assert.deepEqual((await work).result, { path: '.', matches: [], truncated: true })
  assert.ok(answered >= ANSWERED, `${answered} answers`)
})

test('many slow calls of one session do not block another session', async (t) => {
  const { server, mine, other } = await scene(t)
  const pattern = worstGlob(server.root)
  const work = Promise.all(Array.from({ length: 20 }, () => call(server, 'fs.glob', { session_id: mine, pattern })))
  await mkdir(join(server.root, 'd'))
  writeFileSync(join(server.root, 'd/file'), 'b')
  for (let i = 0; i < ANSWERED; i++) {
    assert.deepEqual((await call(server, 'fs.glob', { session_id: other, cwd: 'd', pattern: '*' })).result?.['matches'], [
      join(server.root, 'd/file'),
    ])
    assert.equal(
      (await call(server, 'fs.edit', { session_id: other, path: 'd/file', old_string: i % 2 ? 'c' : 'b', new_string: i % 2 ? 'b' : 'c' }))
        .error,
      undefined,
    )
  }
  await call(server, 'session.close', { session_id: mine })
  // The calls of the other session did not wait for the slow ones.
  const given = (await work).filter(({ error }) => error !== undefined)
  assert.ok(given.length > 0)
  for (const { error } of given) assert.deepEqual([error?.code, error?.data['code']], [-32001, 'unknown_session'])
})

test('closing a session ends its work in progress', async (t) => {
  const { server, mine, other } = await scene(t)
  const pattern = worstGlob(server.root)
  const work = call(server, 'fs.glob', { session_id: mine, pattern })
  // This answer shows that the server is still working on the pattern.
  await call(server, 'fs.stat', { session_id: other, path: '.' })
  assert.deepEqual((await call(server, 'session.close', { session_id: mine })).result?.['ok'], true)
  assert.equal((await work).error?.code, -32001)
})
