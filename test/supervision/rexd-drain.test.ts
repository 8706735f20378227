import assert from 'node:assert/strict'
import { PassThrough } from 'node:stream'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import { NO_WORK, workListOf } from '../../src/protocol/handover.ts'
import { obeyDaemon, workIn } from '../../src/supervision/rexd-drain.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/mesh-of-daemons.ts'
import { rexdBeside } from '../support/rexd-beside.ts'
import { RpcRefused, post } from '../support/rexd-callers.ts'

test('REXD drains when its daemon says so, and reports each change of its work', async () => {
  const [stdin, stdout] = [new PassThrough(), new PassThrough()]
  const clock = new ManualClock()
  let work = workListOf([{ kind: 'rexd', id: '1', who: 'a', argv: ['make'] }])
  const words: boolean[] = []
  obeyDaemon({ rexd: { drain: (on) => void words.push(on), work: () => work }, clock }, { stdin, stdout })
  const lines = (): string[] =>
    String(stdout.read() ?? '')
      .split('\n')
      .filter(Boolean)
  stdin.write('dr')
  stdin.write('ain\n')
  await new Promise(setImmediate)
  assert.deepEqual([words, lines().map(workIn)], [[true], [work]])
  await clock.advance(1_000)
  assert.deepEqual(lines(), [])
  work = NO_WORK
  await clock.advance(1_000)
  assert.deepEqual(lines().map(workIn), [NO_WORK])
  stdin.write(`nonsense\n${'x'.repeat(10_000)}\nserve\n`)
  await new Promise(setImmediate)
  await clock.advance(1_000)
  assert.deepEqual([words, lines()], [[true, false], []])
})

test('a line from REXD is a valid list of work, ignored or refused', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      assert.equal(workIn(`x${text}`), null)
      try {
        workIn(`work ${text}`)
      } catch (error) {
        assert.match(String(error), /list of runs/)
      }
    }),
  )
})

test('a draining daemon waits for commands of REXD, which refuses new ones', { timeout: 60_000 }, async (t) => {
  const { daemon, reached, root } = await rexdBeside(t)
  Object.assign(daemon.options, { flags: ['--drain-timeout', '60'] })
  await daemon.start()
  const server = await reached()
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  const gate = join(root, 'gate')
  const command = `while [ ! -e ${gate} ]; do sleep 0.05; done; echo done > ${root}/done`
  const { process_id } = await post(server, 'exec.start', { session_id, shell: true, command })
  assert.ok(process_id)
  const stopped = daemon.stop('SIGTERM')
  const isDraining = (error: unknown): boolean => error instanceof RpcRefused && /draining/.test(error.message)
  await until('new commands are refused', async () =>
    post(server, 'exec.start', { session_id, argv: ['/bin/true'] }).then(
      () => false,
      (error: unknown) => isDraining(error),
    ),
  )
  await assert.rejects(post(server, 'session.open', { client_name: 'b' }), isDraining)
  assert.ok(daemon.running)
  await writeFile(gate, '')
  assert.equal(await stopped, 0)
  assert.equal(await readFile(join(root, 'done'), 'utf8'), 'done\n')
})
