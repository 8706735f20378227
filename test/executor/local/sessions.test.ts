import assert from 'node:assert/strict'
import { mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import type { SessionGrant } from '../../../src/protocol/rexd/results.ts'
import { refuses } from '../../support/file-permit.ts'
import { LocalHost, openingOf, type Opening } from '../../support/local-engine.ts'

type Granted = SessionGrant & { readonly session: string }

const grantedTo = async (host: LocalHost, opening: Opening = {}): Promise<Granted> => {
  const { session, grant } = await host.executor.open(openingOf(opening))
  return { session, ...grant }
}

test('an opened session gets its rights and limits, and an ID that cannot be guessed', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_output_bytes = 500' })
  const first = await grantedTo(host)
  assert.match(first.session, /^s_[A-Za-z0-9_-]{22}$/)
  assert.deepEqual(first.capabilities.toSorted(), ['events', 'exec', 'exec.input', 'fs', 'fs.read', 'fs.write'])
  assert.deepEqual([first.limits, first.workspace_roots], [{ ...host.policy.limits }, [host.root]])
  const ids = await Promise.all(Array.from({ length: 10 }, () => host.open()))
  assert.equal(new Set([first.session, ...ids]).size, 11)
})

test('a session with narrower roots cannot leave its directory', async (t) => {
  const host = await LocalHost.start(t)
  await mkdir(join(host.root, 'sub'))
  await writeFile(join(host.root, 'secret'), 'x')
  const session = await host.open({ roots: ['sub'] })
  const stat = (path: string) => host.executor.file({ method: 'fs.stat', session, path })
  const outside = { allowed_roots: [join(host.root, 'sub')] }
  for (const path of [join(host.root, 'secret'), '../secret', host.root, '/']) await refuses(stat(path), 'forbidden_path', outside)
  await symlink('../secret', join(host.root, 'sub/link'))
  await refuses(host.executor.file({ method: 'fs.read', session, path: 'link', offset: 0, length: null }), 'forbidden_path')
  await refuses(host.run(session, ['true'], { cwd: host.root }), 'forbidden_path', outside)
  assert.equal((await host.run(session, ['pwd'])).run.cwd, join(host.root, 'sub'))
})

test('a root that was replaced by another directory is refused', async (t) => {
  const host = await LocalHost.start(t)
  await mkdir(join(host.root, 'sub'))
  const session = await host.open({ roots: ['sub'] })
  await rename(join(host.root, 'sub'), join(host.root, 'was'))
  await mkdir(join(host.root, 'sub'))
  const message = /which was replaced/
  await assert.rejects(host.executor.file({ method: 'fs.stat', session, path: '.' }), { code: 'forbidden_path', message })
  await assert.rejects(host.run(session, ['true']), { code: 'forbidden_path', message })
  await rm(join(host.root, 'sub'), { recursive: true })
  await assert.rejects(host.run(session, ['true']))
})

test('the number of open sessions is limited, even for calls at once, and a closed one frees its place', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_concurrent_sessions = 3' })
  const results = await Promise.allSettled(Array.from({ length: 10 }, () => host.open()))
  const open = results.flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []))
  assert.equal(open.length, 3)
  const full = { limit: 'max_concurrent_sessions', max: 3 }
  await refuses(host.open(), 'resource_limit', full)
  assert.equal(await host.close(open[0]!), 0)
  await host.open()
  await refuses(host.open(), 'resource_limit', full)
})

test('a closed or unknown session is refused by every call', async (t) => {
  const host = await LocalHost.start(t)
  const mine = await host.open()
  const closed = await host.open()
  await host.close(closed)
  for (const session of [closed, 's_AAAAAAAAAAAAAAAAAAAAAA', '', '__proto__']) {
    await refuses(host.executor.file({ method: 'fs.stat', session, path: '.' }), 'unknown_session')
    await refuses(host.executor.file({ method: 'fs.list', session, path: '.', recursive: false, max_entries: null }), 'unknown_session')
    await refuses(host.run(session, ['true']), 'unknown_session')
    await refuses(host.close(session), 'unknown_session')
  }
  await host.executor.file({ method: 'fs.stat', session: mine, path: '.' })
})

test('the audit log has the start, the refusals and the end of each session', async (t) => {
  const host = await LocalHost.start(t)
  const session = await host.open({ client_name: 'an agent' })
  await assert.rejects(host.open({ roots: ['/'] }))
  await host.close(session)
  const lines = (await host.lines()).map(({ ts: _ts, chain: _chain, n: _n, prev: _prev, ...line }) => line)
  const key = { door: 'stdio', session_id: session, client_name: 'an agent' }
  assert.deepEqual(lines[0], { event: 'session', ...key, state: 'opened', roots: [host.root], target: null })
  assert.deepEqual(lines[2], { event: 'session', ...key, state: 'closed', roots: [host.root], target: null })
  const refusal = lines[1]!
  assert.ok(refusal.event === 'refused')
  assert.deepEqual([refusal.method, refusal.code, refusal.detail], ['session.open', 'forbidden_path', '/ is outside the allowed roots'])
  assert.notEqual(refusal.session_id, session)
})

test('an engine that stops opens no more sessions', async (t) => {
  const host = await LocalHost.start(t)
  await host.open()
  await host.engine.stop()
  await refuses(host.open(), 'shutting_down')
})

test('a refused session takes no place', async (t) => {
  const host = await LocalHost.start(t, { limits: 'max_concurrent_sessions = 1' })
  for (const roots of [['/'], ['gone']]) await assert.rejects(host.open({ roots }))
  await host.open()
})
