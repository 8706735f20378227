import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { LAST_ANSWERS_MS } from '../../src/protocol/limits/tools.ts'
import { soon } from '../../test/support/local-engine.ts'
import { mcpPlace } from '../../test/support/mcp-server.ts'
import { patient } from '../../test/support/wait-limits.ts'
import { until } from '../../test/support/processes.ts'
import { callOf, RawServer } from '../../test/support/raw-mcp.ts'

test('a client that reads no answers stops the start of further commands, and memory stays bounded', async (t) => {
  const place = await mcpPlace(t)
  await writeFile(join(place.root, 'run.sh'), 'echo x >> count\nhead -c 1000000 /dev/zero | tr "\\0" y\n')
  const server = await RawServer.start(t, place)
  server.child.stdout?.pause()
  const count = 40
  const args = { command: 'sh', args: ['run.sh'], max_stdout_bytes: 1_000_000 }
  server.send(...Array.from({ length: count }, (_one, at) => callOf(at + 1, 'exec_capture', args)))
  const begun = async (): Promise<number> => (await readFile(join(place.root, 'count'), 'utf8').catch(() => '')).length / 2
  // A command starts much faster than this, so no command starts after such a pause.
  const quiet = patient(2_000)
  let last = -1
  await until(async () => {
    const now = await begun()
    if (now > 0 && now === last) return true
    last = now
    await sleep(quiet)
    return false
  })
  assert.ok((await begun()) < 30, `${await begun()} of ${count} were begun`)
  assert.ok((await server.memory()) < 500 * 1024 * 1024)
  server.child.stdout?.resume()
  await Promise.all(Array.from({ length: count }, async (_one, at) => server.answer(at + 1)))
  assert.equal(await begun(), count)
})

test('after the end of its input, the server waits a limited time for a client that reads no answers', async (t) => {
  const place = await mcpPlace(t)
  const deaf = await RawServer.start(t, place)
  deaf.child.stdout?.pause()
  // More than a pipe holds, but not enough to stop the server from reading its input.
  deaf.send(callOf(1, 'exec_capture', { command: 'seq', args: ['50000'], max_stdout_bytes: 400_000 }))
  assert.ok(await soon(async () => (await readFile(place.journal, 'utf8')).includes('"event":"exit"')))
  const before = performance.now()
  deaf.child.stdin?.end()
  assert.ok(await soon(() => deaf.child.exitCode === 0))
  assert.ok(performance.now() - before > LAST_ANSWERS_MS / 2, 'it was waited for at all')
  assert.deepEqual(
    deaf.answers.map(({ id }) => id),
    [0],
  )
})
