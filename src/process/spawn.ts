import { spawn, type ChildProcess, type StdioOptions } from 'node:child_process'
import { once } from 'node:events'
import { statSync } from 'node:fs'
import { constants } from 'node:os'
import type { Readable, Writable } from 'node:stream'

import { AppError, errorText } from '../base/errors.ts'
import { isPermit, type Permit } from '../policy/permit.ts'
import type { Guardian } from './guardian.ts'
import { ProcessTree } from './process-tree.ts'

/** How a process ended: a status, or the number of the signal that ended it. */
export interface ProcessExit {
  readonly code: number | null
  readonly signal: number | null
}

/** A started program: the leader of a session and group of its own. */
export interface Child {
  readonly pid: number
  /** Null: it reads /dev/null. */
  readonly stdin: Writable | null
  readonly stdout: Readable
  readonly stderr: Readable
  /** Signals the whole group and what has left it; does nothing once the process was reaped. */
  signal(signal: 'SIGTERM' | 'SIGKILL'): void
  /** Settles when the process was reaped and the rest of its group killed. */
  readonly exited: Promise<ProcessExit>
}

/** A failure to start is a value: the requester is denied `spawn_failed`, `detail` stays here. */
export type SpawnResult = { readonly kind: 'spawned'; readonly child: Child } | { readonly kind: 'spawn_failed'; readonly detail: string }

const failed = (detail: string): SpawnResult => ({ kind: 'spawn_failed', detail })

/** What stands at the path now must be the very file that was permitted. */
const launchProblem = ({ executable, cwd }: Permit): string | null => {
  try {
    const info = statSync(executable.path, { bigint: true })
    if (info.dev !== executable.dev || info.ino !== executable.ino) return `${executable.path} was replaced after it was permitted`
  } catch (error) {
    return errorText(error)
  }
  try {
    // The runtime would report a missing directory as a missing program.
    return statSync(cwd).isDirectory() ? null : `the working directory ${cwd} is not a directory`
  } catch (error) {
    return `the working directory: ${errorText(error)}`
  }
}

const launch = (permit: Permit, stdin: boolean): ChildProcess => {
  const { argv, executable, cwd, env } = permit
  const stdio: StdioOptions = [stdin ? 'pipe' : 'ignore', 'pipe', 'pipe']
  return spawn(executable.path, argv.slice(1), { argv0: argv[0] ?? executable.path, cwd, env, stdio, shell: false, detached: true })
}

const toExit = (code: number | null, signal: NodeJS.Signals | null): ProcessExit =>
  signal === null ? { code, signal: null } : { code: null, signal: constants.signals[signal] }

/**
 * Starts what the permit says: no shell, its own session and group, exactly its environment, and no
 * descriptor but the three standard ones. Only a permit that `authorize` made is accepted.
 */
export const spawnPermitted = async (
  permit: Permit,
  components: { guardian: Guardian },
  options: { stdin: boolean },
): Promise<SpawnResult> => {
  if (!isPermit(permit)) throw new AppError('internal', 'only a permit can be run')
  const problem = launchProblem(permit)
  if (problem !== null) return failed(problem)
  let child: ChildProcess
  try {
    child = launch(permit, options.stdin)
  } catch (error) {
    return failed(errorText(error))
  }
  const { pid, stdin, stdout, stderr } = child
  if (pid === undefined || stdout === null || stderr === null) {
    const [error] = await once(child, 'error')
    return failed(errorText(error))
  }
  // Later errors can only come from a kill through the runtime's own handle, which nobody uses.
  child.on('error', () => {})
  components.guardian.protect(pid)
  const tree = new ProcessTree(pid)
  const exited = new Promise<ProcessExit>((resolve) => {
    child.once('exit', (code, signal) => {
      tree.end()
      components.guardian.release(pid)
      resolve(toExit(code, signal))
    })
  })
  return { kind: 'spawned', child: { pid, stdin, stdout, stderr, exited, signal: (signal) => tree.signal(signal) } }
}
