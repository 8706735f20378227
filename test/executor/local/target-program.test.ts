import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { systemClock } from '../../../src/base/clock.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { LocalJournal } from '../../../src/executor/local/local-journal.ts'
import { LocalReport } from '../../../src/executor/local/local-report.ts'
import { SessionRun } from '../../../src/executor/local/local-run.ts'
import { TargetProgram, type TargetRunner } from '../../../src/executor/local/target-program.ts'
import type { RequestId } from '../../../src/protocol/ids.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057' as RequestId

test('however often a run of a target is to be ended, its daemon is asked once at a time, and once more for what came meanwhile', async () => {
  const asked: PromiseWithResolvers<void>[] = []
  const targets: TargetRunner = {
    run: async function* () {
      yield { type: 'started', pid: 1 } as never
      await new Promise(() => undefined)
    },
    cancel: async () => {
      asked.push(Promise.withResolvers<void>())
      await asked.at(-1)!.promise
    },
    reach: async () => assert.fail('it is asked to run, and not whether it answers'),
    rules: async () => assert.fail('it is asked to run, and not what it allows'),
  }
  const grant = { target: 'bob', argv: ['sleep', '600'], timeout_ms: 1_000, max_output_bytes: 1_000 }
  const target = new TargetProgram({ targets }, { requestId: ID, grant, stdin: null })
  const journal = new LocalJournal({ journal: null, log: silentLogger })
  const key = { door: 'stdio', session_id: 's_1', client_name: 'a', request_id: ID } as const
  const nothing = (): void => undefined
  const report = new LocalReport(
    { journal },
    { key, request: { argv: grant.argv } as never, target, onStarted: nothing, onCapHit: nothing },
  )
  const run = new SessionRun(
    { log: silentLogger },
    {
      requestId: ID,
      startedAt: new Date(systemClock.now()).toISOString(),
      cwd: null,
      caps: grant,
      sink: { event: nothing },
      stdin: null,
      report,
      slot: { release: nothing },
      start: async (handlers) => target.start(handlers),
      target,
    },
  )
  void run.execute()
  await run.begun
  for (let time = 0; time < 1_000; time++) run.signal('TERM')
  await turn()
  for (let time = 0; time < 1_000; time++) run.signal('TERM')
  assert.equal(asked.length, 1)
  asked[0]!.resolve()
  await turn()
  assert.equal(asked.length, 2)
  asked[1]!.resolve()
  await turn()
  run.end('cancelled')
  await turn()
  assert.equal(asked.length, 3)
  asked[2]!.resolve()
})
