import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { acquaint, proxiedPair, type ProxiedPair } from '../test/support/proxied-pair.ts'

// A machine was asleep, or its path died silently. Its daemon still believes that its connections work, and sends the first command over
// one of them.

/** Two daemons that have already talked, with a kept connection. */
const stageOf = async (t: TestContext): Promise<ProxiedPair<CuttableProxy>> => {
  const stage = await proxiedPair(t, (port) => new CuttableProxy(port))
  const copy = await stage.mesh.program('copy', `echo once >> ${join(stage.mesh.root, 'executed')}; exec cat`)
  await acquaint(stage, [['echo', '<INT>'], [copy]], 'max_stdin_bytes = 16777216\nmax_stdout_bytes = 16777216\n')
  await stage.alice.ok('exec', 'bob', '--', 'echo', '1')
  return stage
}

const sentAgain = async ({ alice }: ProxiedPair<CuttableProxy>): Promise<number> =>
  (await alice.json<{ requester: Record<string, number> }>('diagnostics', 'exec')).requester['requests_sent_again'] ?? 0

for (const [what, die] of [
  ['whose path died silently', (proxy) => proxy.stall()],
  ['that the target has long closed', (proxy) => proxy.cutFar()],
] as const satisfies [string, (proxy: CuttableProxy) => void][])
  test(`the first command over a connection ${what} runs once, and its client notices no difference`, async (t) => {
    const stage = await stageOf(t)
    const { alice, bob, proxy } = stage
    die(proxy)
    const first = await alice.cli(['exec', 'bob', '--', 'echo', '7'])
    assert.deepEqual([first.status, first.stdout.toString(), first.stderr], [0, '7\n', ''])
    assert.equal(await sentAgain(stage), 1)
    const events = (await bob.journal()).map(({ event }) => event)
    assert.deepEqual(
      events.filter((event) => ['request', 'started', 'exit'].includes(event)),
      ['request', 'started', 'exit', 'request', 'started', 'exit'],
    )
    assert.equal((await bob.cli(['audit', 'verify'])).status, 0)
    await alice.ok('exec', 'bob', '--', 'echo', '8')
    assert.equal(await sentAgain(stage), 1)
  })

test('its stdin is sent again too, and every byte arrives once', async (t) => {
  const stage = await stageOf(t)
  const { alice, mesh, proxy } = stage
  const data = randomBytes(3 * 1024 * 1024)
  await writeFile(join(mesh.root, 'data'), data)
  proxy.stall()
  const result = await alice.cli(['exec', 'bob', '--stdin-file', join(mesh.root, 'data'), '--', join(mesh.root, 'copy')])
  assert.deepEqual([result.status, result.stderr, result.stdout.equals(data)], [0, '', true])
  assert.deepEqual([await readFile(join(mesh.root, 'executed'), 'utf8'), await sentAgain(stage)], ['once\n', 1])
})
