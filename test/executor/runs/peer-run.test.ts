import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import type { Logger } from '../../../src/base/log.ts'
import { PeerRun, type PeerRunInit, type PeerRunOutput } from '../../../src/executor/runs/peer-run.ts'
import type { AdmittedRun, PendingApproval, RefusedRun } from '../../../src/executor/runs/peer-run.ts'
import { execFrame } from '../../../src/protocol/wire/exec.ts'
import { RunReporter } from '../../../src/protocol/events/run-reporter.ts'
import { soon } from '../../support/local-engine.ts'
import { permitFor } from '../../support/permit.ts'
import { noFileRuns } from '../../support/file-runs.ts'
import { groupCells, script, silent, startGuardian } from '../../support/processes.ts'

const REQUEST_ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const EXIT = new Uint8Array([1])
const REFUSAL = new Uint8Array([2])

/** A run of one program. Its output, journal, slot and approval clients record their calls. */
class Recorder {
  readonly events: string[] = []
  stdin: PeerRunInit['stdin'] = null
  readonly #t: TestContext

  constructor(t: TestContext) {
    this.#t = t
  }

  /** Waits until all calls that do not depend on others are recorded. */
  async settles(): Promise<void> {
    for (let turn = 0; turn < 20; turn += 1) await new Promise(setImmediate)
  }

  async admitted(program = 'exit 3', requested = async (): Promise<void> => undefined): Promise<AdmittedRun> {
    return {
      permit: permitFor([await script(this.#t, program)]),
      report: {
        requested: async () => {
          this.events.push('requested')
          await requested()
          return true
        },
        allowed: () => undefined,
        started: () => void this.events.push('started'),
        warned: ({ kind }) => void this.events.push(`warned ${kind}`),
        denied: async (reason, detail) => {
          this.events.push(`denied ${reason}: ${detail}`)
          return REFUSAL
        },
        ended: async ({ code, signal }) => {
          this.events.push(`ended ${code ?? `by ${signal}`}`)
          return EXIT
        },
        settled: () => undefined,
      },
      slot: { release: () => void this.events.push('slot free') },
    }
  }

  async run(admission: AdmittedRun | PendingApproval, more: Partial<PeerRunOutput> = {}): Promise<PeerRun> {
    const { events } = this
    const output: PeerRunOutput = {
      waiting: () => undefined,
      push: () => true,
      note: (frame) => {
        const note = execFrame.decode(frame)
        events.push(note.type === 'warning' ? `note ${note.kind}` : `note ${note.type}`)
      },
      finish: (exit) => void events.push(exit === null ? 'no exit' : `exit ${exit.join('')}`),
      ...more,
    }
    const log: Logger = { ...silent, error: () => void events.push('logged') }
    const reporter = new RunReporter(
      { tell: ({ type }) => void events.push(type) },
      { owner: 'bob', session: null, door: 'mesh', run_id: REQUEST_ID, node: 'here' },
    )
    const components = { trees: await groupCells(), clock: systemClock, cleanup: startGuardian(this.#t), log, ...noFileRuns() }
    return new PeerRun(components, { requestId: REQUEST_ID, admission, output, stdin: this.stdin, reporter })
  }
}

const approval = (): {
  readonly awaited: PendingApproval
  readonly decided: PromiseWithResolvers<AdmittedRun | RefusedRun>
  readonly withdrawn: string[]
} => {
  const decided = Promise.withResolvers<AdmittedRun | RefusedRun>()
  const withdrawn: string[] = []
  return { awaited: { settle: async () => decided.promise, withdraw: (cause) => void withdrawn.push(cause) }, decided, withdrawn }
}

test('a run is logged before its program starts, and is over after its output has the Exit', async (t) => {
  const recorder = new Recorder(t)
  const [recorded, kept] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const run = await recorder.run(await recorder.admitted('exit 3', async () => recorded.promise), {
    finish: async () => {
      recorder.events.push('finishing')
      await kept.promise
      recorder.events.push('finished')
    },
  })
  const over = run.execute().then(() => recorder.events.push('over'))
  await recorder.settles()
  assert.deepEqual(recorder.events, ['requested'])
  recorded.resolve()
  await soon(() => recorder.events.includes('finishing'))
  await recorder.settles()
  kept.resolve()
  await over
  assert.deepEqual(recorder.events, [
    'requested',
    'exec.started',
    'started',
    'note started',
    'slot free',
    'exec.finished',
    'ended 3',
    'finishing',
    'finished',
    'over',
  ])
})

test('a run whose end cannot be kept is logged as lost, and is over when its output knows', async (t) => {
  const recorder = new Recorder(t)
  const known = Promise.withResolvers<void>()
  const run = await recorder.run(await recorder.admitted(), {
    finish: async (exit) => {
      recorder.events.push(exit === null ? 'no exit' : 'exit')
      if (exit !== null) throw new Error('the disk is full')
      await known.promise
      recorder.events.push('known')
    },
  })
  const over = run.execute().then(() => recorder.events.push('over'))
  await soon(() => recorder.events.includes('no exit'))
  await recorder.settles()
  known.resolve()
  await over
  assert.deepEqual(recorder.events.slice(-5), ['exit', 'logged', 'no exit', 'known', 'over'])
})

test('a run with an internal error frees its slot, and its watchers see its end', async (t) => {
  const recorder = new Recorder(t)
  const broken = async (): Promise<void> => {
    throw new Error('a mistake')
  }
  await (await recorder.run(await recorder.admitted('exit 3', broken))).execute()
  assert.deepEqual(recorder.events, ['requested', 'slot free', 'logged', 'exec.finished', 'no exit'])
})

test('the audit log waits for the output, and an earlier end is written after the request', async (t) => {
  const recorder = new Recorder(t)
  const ready = Promise.withResolvers<void>()
  const run = await recorder.run(await recorder.admitted(), { open: async () => ready.promise })
  const over = run.execute()
  run.end('access_revoked')
  run.end('cancelled')
  await recorder.settles()
  assert.deepEqual([recorder.events, run.state], [[], 'ending'])
  ready.resolve()
  await over
  assert.deepEqual(recorder.events, [
    'requested',
    'warned access_revoked',
    'note access_revoked',
    'exec.finished',
    'ended by null',
    'slot free',
    'exit 1',
  ])
})

test('a run whose output cannot be kept is denied, frees its slot and starts no program', async (t) => {
  const recorder = new Recorder(t)
  const run = await recorder.run(await recorder.admitted(), {
    open: async () => {
      throw new Error('the disk is full')
    },
  })
  await run.execute()
  const denial = 'denied spawn_failed: its output cannot be kept: the disk is full'
  assert.deepEqual(recorder.events, ['slot free', 'exec.denied', denial, 'exit 2'])
})

test('a waiting run whose output cannot be kept withdraws its approval request', async (t) => {
  const recorder = new Recorder(t)
  const { awaited, decided, withdrawn } = approval()
  const run = await recorder.run(awaited, {
    open: async () => {
      throw new Error('the disk is full')
    },
  })
  const over = run.execute()
  await recorder.settles()
  assert.deepEqual([withdrawn, run.state], [['cancelled'], 'waiting_for_approval'])
  decided.resolve({ reason: 'approval_denied', exit: REFUSAL })
  await over
  assert.deepEqual(recorder.events, ['exec.denied', 'exit 2'])
})

test('an approved run starts only if its record could be written', async (t) => {
  for (const isWritten of [true, false]) {
    const recorder = new Recorder(t)
    const { awaited, decided } = approval()
    const written = Promise.withResolvers<boolean>()
    const run = await recorder.run(awaited, { approved: async () => written.promise })
    const over = run.execute()
    assert.equal(run.state, 'waiting_for_approval')
    decided.resolve(await recorder.admitted())
    await recorder.settles()
    assert.deepEqual(recorder.events, [])
    written.resolve(isWritten)
    await over
    const denial = 'denied spawn_failed: its record cannot be written'
    assert.deepEqual(
      isWritten ? recorder.events.at(-1) : recorder.events,
      isWritten ? 'exit 1' : ['slot free', 'exec.denied', denial, 'exit 2'],
    )
  }
})

test('a run that is ended at the moment of its approval starts no program', async (t) => {
  const recorder = new Recorder(t)
  const { awaited, decided, withdrawn } = approval()
  const run = await recorder.run(awaited)
  const over = run.execute()
  decided.resolve(await recorder.admitted())
  run.end('lease_expired')
  await over
  assert.deepEqual(withdrawn, ['lease_expired'])
  assert.ok(!recorder.events.includes('started'))
  assert.deepEqual(recorder.events.slice(0, 3), ['note lease_expired', 'requested', 'warned lease_expired'])
})

test('a waiting run that is refused or ended releases its stdin', async (t) => {
  for (const isEnded of [true, false]) {
    const recorder = new Recorder(t)
    const { awaited, decided } = approval()
    recorder.stdin = {
      whole: Promise.resolve(new Uint8Array()),
      attach: () => undefined,
      stop: () => void recorder.events.push('stdin stops'),
    }
    const run = await recorder.run(awaited)
    const over = run.execute()
    if (isEnded) run.end('cancelled')
    assert.deepEqual(recorder.events, isEnded ? ['stdin stops', 'note cancelled'] : [])
    recorder.events.length = 0
    decided.resolve({ reason: 'approval_denied', exit: REFUSAL })
    await over
    assert.deepEqual(recorder.events, ['stdin stops', 'exec.denied', 'exit 2'])
  }
})

for (const title of ['while its request is being logged', 'before it may start'] as const)
  test(`a run that is killed ${title} gets no grace period when it starts`, async (t) => {
    const recorder = new Recorder(t)
    const begun = Promise.withResolvers<void>()
    const isEarly = title === 'before it may start'
    const killed = (): void => void recorder.events.push('killed')
    const deaf = "trap '' TERM; while :; do sleep 0.05; done"
    const admitted = await recorder.admitted(deaf, async () => (isEarly ? undefined : begun.promise))
    const run = await recorder.run(admitted, { open: async () => (isEarly ? begun.promise : undefined), killed })
    const over = run.execute()
    await recorder.settles()
    run.kill()
    begun.resolve()
    await over
    assert.ok(recorder.events.includes('killed'))
    assert.deepEqual(recorder.events.slice(-3), ['exec.finished', 'ended by 9', 'exit 1'])
  })

test('the requester learns of a watching operator after it learns that the run can be watched', async (t) => {
  for (const watch of [true, false]) {
    const recorder = new Recorder(t)
    const { awaited, decided } = approval()
    const run = await recorder.run(awaited)
    const done = run.execute()
    run.watched()
    run.watched()
    const admitted = await recorder.admitted()
    decided.resolve({ ...admitted, permit: permitFor([await script(t, 'exit 3')], { watch }) })
    await done
    assert.deepEqual(
      recorder.events.filter((event) => event.startsWith('note session_')),
      watch ? ['note session_watchable', 'note session_watched'] : [],
    )
  }
})
