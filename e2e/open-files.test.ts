import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { closeSync, constants, openSync, readdirSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { findExecutable } from '../src/policy/executable.ts'
import { openFilesOf } from '../src/process/open-files.ts'
import { MeshOfDaemons, until } from '../test/support/mesh-of-daemons.ts'
import { patient } from '../test/support/wait-limits.ts'

/** Each run needs at least two open files of its target, and three with standard input. */
const RUNS = 120
/** Limit of open files that commands start with. It is too low for all runs together. */
const LIMIT = 256
const hasLimits = findExecutable('prlimit').kind === 'found' && (openFilesOf('self')?.hard ?? 0) >= 2_000

interface Answer {
  readonly code: number | null
  readonly denial_reason: string | null
  readonly stdout_b64: string
}

test(
  'a daemon runs many commands at once although its limit of open files for commands is lower than their total',
  { timeout: patient(120_000), skip: hasLimits ? false : 'needs prlimit and /proc' },
  async (t) => {
    const mesh = await MeshOfDaemons.create()
    t.after(async () => mesh.stop())
    const fifo = join(mesh.root, 'go')
    assert.equal(spawnSync('mkfifo', [fifo]).status, 0)
    const waits = await mesh.program('waits', `ulimit -Sn; read -r _ <${fifo}; cat`)
    const daemon = mesh.add('alice', { env: { X0X_OPEN_FILES: String(LIMIT) } })
    await daemon.start()
    await daemon.writeAcl([{ agent: daemon, commands: [[waits]] }], `max_concurrent_per_agent = ${RUNS}\nmax_concurrent_total = ${RUNS}`)
    await daemon.restart()
    const body = { agent: daemon.agentId, argv: [waits], stdin_b64: Buffer.from('end\n').toString('base64') }
    const answers = Array.from({ length: RUNS }, async () => daemon.api.json<Answer>({ method: 'POST', path: '/exec/run', body }))
    await until('all run', async () => (await daemon.journal()).filter(({ event }) => event === 'started').length === RUNS, patient(60_000))
    assert.ok(readdirSync(`/proc/${daemon.pid}/fd`).length > LIMIT)
    // Stays open until all runs have ended, and holds one line per run, because a program may open its end later.
    const gate = openSync(fifo, constants.O_RDWR)
    t.after(() => closeSync(gate))
    writeSync(gate, '\n'.repeat(RUNS))
    for (const { code, denial_reason, stdout_b64 } of await Promise.all(answers))
      assert.deepEqual([code, denial_reason, Buffer.from(stdout_b64, 'base64').toString()], [0, null, `${LIMIT}\nend\n`])
  },
)
