import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { ExecCounters } from '../../../src/executor/exec-counters.ts'
import { UnackedTotal } from '../../../src/executor/runs/outbox.ts'
import { PeerStreamWriter } from '../../../src/executor/runs/frames.ts'
import { RequesterStream } from '../../../src/executor/runs/requester-stream.ts'
import { FIRST_UNACKED_PER_RUN } from '../../../src/protocol/limits/wire.ts'
import { noFileRuns } from '../../support/file-runs.ts'
import { soon } from '../../support/local-engine.ts'
import { permitFor } from '../../support/permit.ts'
import { groupCells, script, silent, startGuardian } from '../../support/processes.ts'

/** Starts a run with the program `text` on the stream of a requester that acknowledges nothing. */
const begin = async (t: TestContext, text: string, resumable: boolean) => {
  const events: string[] = []
  const channel = { closed: false, full: false, send: () => true, sendAndRelease: () => true, drained: async () => undefined }
  const stream: RequesterStream = new RequesterStream(
    {
      trees: await groupCells(),
      clock: systemClock,
      counters: new ExecCounters({ clock: systemClock }),
      cleanup: startGuardian(t),
      log: silent,
      total: new UnackedTotal(),
      ...noFileRuns(),
    },
    {
      requestId: '01890a5d-ac96-774b-bcce-b302099a8057',
      stdin: null,
      admission: {
        permit: permitFor([await script(t, text)]),
        report: {
          requested: async () => true,
          allowed: () => undefined,
          started: () => undefined,
          warned: () => undefined,
          denied: () => assert.fail('nothing denies it'),
          ended: async ({ code, signal }) => {
            events.push(`ended ${code ?? `by ${signal}`}`)
            return new Uint8Array([1])
          },
          settled: () => undefined,
        },
        slot: { release: () => undefined },
      },
      reporter: null,
      outlet: new PeerStreamWriter({ channel }, { run: 1, onClosed: () => events.push('closed') }),
      resumable,
      onForgotten: () => events.push('forgotten'),
    },
  )
  return { stream, events, over: stream.run.execute() }
}

for (const resumable of [true, false])
  test(`the Exit of a run that ${resumable ? 'may' : 'may not'} be resumed ${resumable ? 'waits for its requester' : 'is sent and forgotten'}`, async (t) => {
    const { stream, events, over } = await begin(t, 'exit 3', resumable)
    await over
    assert.deepEqual([events, stream.awaitsAck], [resumable ? ['ended 3'] : ['ended 3', 'closed', 'forgotten'], resumable])
    stream.evict()
    assert.deepEqual(events, ['ended 3', 'closed', 'forgotten'])
  })

test('a run that is killed while its output is not read ends and keeps no output', async (t) => {
  const { stream, events, over } = await begin(t, "trap '' TERM; while :; do head -c 1000000 /dev/zero; done", true)
  // The window is full, so the program is paused.
  assert.equal(await soon(() => stream.retainedBytes >= FIRST_UNACKED_PER_RUN), true)
  stream.run.kill()
  await over
  assert.deepEqual([events, stream.retainedBytes, stream.awaitsAck], [['ended by 9', 'closed', 'forgotten'], 0, false])
})
