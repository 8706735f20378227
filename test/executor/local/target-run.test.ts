import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'

import { silentLogger } from '../../../src/base/log.ts'
import { LocalJournal } from '../../../src/executor/local/local-journal.ts'
import { TargetRun } from '../../../src/executor/local/target-run.ts'
import type { TargetRunner } from '../../../src/executor/local/target-runner.ts'
import { UnackedTotal } from '../../../src/executor/runs/outbox.ts'
import type { RunOutlet } from '../../../src/executor/runs/outlet.ts'
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
  }
  const outlet = { send: () => true, full: false, drained: async () => undefined, close: () => undefined } as unknown as RunOutlet
  const grant = { target: 'bob', argv: ['sleep', '600'], timeout_ms: 1_000, max_output_bytes: 1_000 }
  const journal = new LocalJournal({ journal: null, log: silentLogger })
  const run = new TargetRun(
    { journal, targets, total: new UnackedTotal() },
    {
      key: { door: 'stdio', session_id: 's_1', client_name: 'a', request_id: ID },
      grant,
      slot: { release: () => undefined },
      outlet,
      stdin: null,
      failOnLimit: false,
    },
  )
  void (await run.ask())()
  for (let time = 0; time < 1_000; time++) run.program!.signal('SIGTERM')
  await turn()
  for (let time = 0; time < 1_000; time++) run.program!.signal('SIGTERM')
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
