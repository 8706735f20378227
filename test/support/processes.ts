import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { systemClock, type Clock } from '../../src/base/clock.ts'
import type { Logger } from '../../src/base/log.ts'
import type { WarningKind } from '../../src/protocol/reasons.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { startProcess, type ProcessEnd, type RunningProcess } from '../../src/process/running-process.ts'
import { permitFor, type PermitOptions } from './permit.ts'
import { patient } from './wait-limits.ts'

const say = (): void => {}
/** A logger that discards everything. */
export const silent: Logger = { debug: say, info: say, warn: say, error: say, child: () => silent }

/** A directory that is removed after the test. */
export const temporaryDirectory = async (t: TestContext): Promise<string> => {
  const directory = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  t.after(() => rm(directory, { recursive: true, force: true, maxRetries: 10 }))
  return directory
}

export const startGuardian = (t: TestContext): CleanupProcess => {
  const cleanup = new CleanupProcess({ log: silent })
  cleanup.start()
  t.after(() => cleanup.stop())
  return cleanup
}

/** Process trees as process groups, without a check for stronger containments. */
export const groupCells = async (cleanup: CleanupProcess | null = null): Promise<ProcessTrees> =>
  ProcessTrees.open({ cleanup, log: silent }, { choice: 'group', dataDir: null })

/** A shell program in a separate file, because policy forbids metacharacters in arguments. */
export const script = async (t: TestContext, text: string): Promise<string> => {
  const path = join(await temporaryDirectory(t), 'program.sh')
  await writeFile(path, `#!/bin/sh\n${text}\n`)
  await chmod(path, 0o755)
  return path
}

export interface StartedProcess {
  readonly process: RunningProcess
  readonly output: { stdout: Buffer[]; stderr: Buffer[] }
  readonly warnings: { kind: WarningKind; bytes: number | null }[]
  /** Waits until stdout contains this text. */
  printed(text: string): Promise<void>
}

export interface StartOptions extends PermitOptions {
  readonly stdin?: boolean
  readonly clock?: Clock
  readonly cleanup?: CleanupProcess
  readonly trees?: ProcessTrees
  readonly paused?: boolean
}

/** Starts a permitted argv and keeps its output. The test ends it. */
export const start = async (t: TestContext, argv: readonly string[], options: StartOptions = {}): Promise<StartedProcess> => {
  const output: StartedProcess['output'] = { stdout: [], stderr: [] }
  const warnings: StartedProcess['warnings'] = []
  let waiting: { text: string; resolve: () => void }[] = []
  const text = (): string => Buffer.concat(output.stdout).toString()
  const cleanup = options.cleanup ?? startGuardian(t)
  const result = await startProcess(
    permitFor(argv, options),
    {
      trees: options.trees ?? (await groupCells(cleanup)),
      clock: options.clock ?? systemClock,
      cleanup,
      handlers: {
        onOutput: (stream, data) => {
          output[stream].push(Buffer.from(data))
          if (waiting.length === 0) return
          const now = text()
          for (const one of waiting) if (now.includes(one.text)) one.resolve()
          waiting = waiting.filter((one) => !now.includes(one.text))
        },
        onWarning: (kind, bytes) => warnings.push({ kind, bytes }),
      },
    },
    { stdin: options.stdin ?? false },
  )
  assert.equal(result.kind, 'started', JSON.stringify(result))
  const { process } = result
  t.after(() => process.kill())
  if (!options.paused) process.resume()
  const printed = (wanted: string): Promise<void> =>
    new Promise((resolve) => {
      if (text().includes(wanted)) resolve()
      else waiting.push({ text: wanted, resolve })
    })
  return { process, output, warnings, printed }
}

/** Runs an argv to its end. */
export const run = async (
  t: TestContext,
  argv: readonly string[],
  options: StartOptions = {},
): Promise<StartedProcess & { end: ProcessEnd; stdout: string; stderr: string }> => {
  const started = await start(t, argv, options)
  const end = await started.process.ended
  const { stdout, stderr } = started.output
  return { ...started, end, stdout: Buffer.concat(stdout).toString(), stderr: Buffer.concat(stderr).toString() }
}

/** True while the process exists and is not a zombie. */
export const isAlive = (pid: number): boolean => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return stat[stat.lastIndexOf(')') + 2] !== 'Z'
  } catch {
    return false
  }
}

/** Longer than any wait in these tests. An endless wait would block the whole test run. */
const PATIENCE_MS = patient(120_000)

/** Polls for a condition that no event reports. */
export const until = async (condition: () => boolean | Promise<boolean>): Promise<void> => {
  const deadline = performance.now() + PATIENCE_MS
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`not within ${PATIENCE_MS / 1000} s: ${condition.toString()}`)
    await sleep(5)
  }
}

export const hasProc = ((): boolean => {
  try {
    return readFileSync('/proc/self/stat').length > 0
  } catch {
    return false
  }
})()
