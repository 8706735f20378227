import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { request as httpRequest } from 'node:http'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import type { HttpRefusedEvent, JournalLine } from '../../../src/journal/events.ts'
import { linesOf } from '../../support/journal.ts'
import { MeshOfDaemons, type TestDaemon } from '../../support/mesh-of-daemons.ts'
import { until } from '../../support/processes.ts'
import { readAnswer, response } from '../../support/rest-server.ts'
import { REFUSAL_LINES } from '../../../src/journal/refusals.ts'

const TIMEOUT = { timeout: 120_000 }

const call = async (daemon: TestDaemon, path: string, headers: Record<string, string>, viaSocket = false): Promise<number> => {
  const where = viaSocket ? { socketPath: join(daemon.dir, 'api.sock') } : { host: '127.0.0.1', port: daemon.apiPort }
  const request = httpRequest({ ...where, path, agent: false, headers })
  request.end()
  return (await readAnswer(await response(request))).status
}

const refusalsIn = async (path: string): Promise<(JournalLine & HttpRefusedEvent)[]> =>
  (await linesOf(path)).flatMap((line) => (typeof line !== 'string' && line.event === 'http_refused' ? [line] : []))

const tryIt = async (t: TestContext, withAcl: boolean): Promise<void> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const daemon = mesh.add('alice')
  if (withAcl) await daemon.writeAcl([])
  await daemon.start()
  const path = withAcl ? daemon.journalFile : join(daemon.dir, 'requests.jsonl')
  const token = (await readFile(join(daemon.dir, 'api-token'), 'utf8')).trim()
  const proven = { authorization: `Bearer ${token}` }
  assert.deepEqual(
    [
      await call(daemon, `/agent?token=${token}`, {}),
      await call(daemon, '/contacts', { authorization: `Bearer ${token.slice(1)}0` }, true),
      await call(daemon, '/health', { ...proven, origin: 'https://evil.example' }),
      await call(daemon, '/health', { ...proven, host: 'evil.example' }),
      await call(daemon, '/agent', proven),
    ],
    [401, 401, 403, 403, 200],
  )
  await until(async () => (await refusalsIn(path)).length >= 4)
  const own = `127.0.0.1:${daemon.apiPort}`
  assert.deepEqual(
    (await refusalsIn(path)).map((line) => [line.code, line.method, line.path, line.host, line.origin, line.remote]),
    [
      ['unauthorized', 'GET', '/agent', own, null, '127.0.0.1'],
      ['unauthorized', 'GET', '/contacts', 'localhost', null, null],
      ['forbidden_host', 'GET', '/health', own, 'https://evil.example', '127.0.0.1'],
      ['forbidden_host', 'GET', '/health', 'evil.example', null, '127.0.0.1'],
    ],
  )
  for (let n = 0; n < REFUSAL_LINES.burst + 50; n++) await call(daemon, '/agent', {})
  await daemon.stop()
  const lines = await linesOf(path)
  assert.ok((await refusalsIn(path)).length < REFUSAL_LINES.burst + 50, 'a flood leaves a bounded number')
  assert.ok(
    lines.some((line) => typeof line !== 'string' && line.event === 'refusals_suppressed'),
    'and the count of the rest',
  )
  assert.ok(!(await readFile(path, 'utf8')).includes(token))
  await daemon.start()
  assert.match(await daemon.ok('audit', 'verify', path), /ok/)
}

test('a REST call without the token or from a foreign page leaves a line in the audit log', TIMEOUT, async (t) => tryIt(t, true))
test('without an ACL, a refused REST call leaves a line in requests.jsonl', TIMEOUT, async (t) => tryIt(t, false))
