import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { ExecCounters } from '../../../src/diagnostics/exec-counters.ts'
import type { ExitFacts } from '../../../src/executor/runs/run-facts.ts'
import { UnackedTotal } from '../../../src/executor/runs/outbox.ts'
import { RunOutlet } from '../../../src/executor/runs/outlet.ts'
import { Run } from '../../../src/executor/runs/run.ts'
import { permitFor } from '../../support/permit.ts'
import { groupCells, script, silent, startGuardian } from '../../support/processes.ts'

test('a run that is killed while it is being started has no grace when it begins', async (t) => {
  const begun = Promise.withResolvers<void>()
  const ended: ExitFacts[] = []
  const report = {
    requested: async () => {
      await begun.promise
      return true
    },
    allowed: () => undefined,
    started: () => undefined,
    warned: () => undefined,
    denied: () => assert.fail('nothing denies it'),
    ended: async (facts: ExitFacts) => {
      ended.push(facts)
      return new Uint8Array()
    },
    settled: () => undefined,
  }
  const channel = { closed: false, full: false, send: () => true, drained: async () => undefined }
  const run = new Run(
    {
      cells: await groupCells(),
      clock: systemClock,
      counters: new ExecCounters({ clock: systemClock }),
      guardian: startGuardian(t),
      log: silent,
      total: new UnackedTotal(),
    },
    {
      requestId: '01890a5d-ac96-774b-bcce-b302099a8057',
      stdin: null,
      admission: {
        permit: permitFor([await script(t, "trap '' TERM; while :; do sleep 0.05; done")]),
        report,
        slot: { release: () => undefined },
      },
      story: null,
      outlet: new RunOutlet({ channel }, { run: 1, onClosed: () => undefined }),
      resumable: false,
      onForgotten: () => undefined,
    },
  )
  const over = run.execute()
  run.kill()
  begun.resolve()
  await over
  assert.deepEqual(
    ended.map(({ code, signal }) => [code, signal]),
    [[null, 9]],
  )
})
