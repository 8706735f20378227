import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { AppError, errnoOf } from '../base/errors.ts'
import { type ProcessIdentity, processState } from '../base/process-info.ts'
import { within, type Clock } from '../base/clock.ts'
import { dialService } from '../base/unix-sockets.ts'
import type { DataPaths } from '../clients/paths.ts'
import type { DaemonConfig } from '../config/config.ts'
import { aclSigningOf } from '../policy/mesh/accepted-acl.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { type HandoverEvent, type WorkList, readHandoverEvent } from '../protocol/handover.ts'
import { DRAIN_REPORT_MS, HANDOVER_OPEN_MS, MAX_WORK_JSON } from '../protocol/limits/daemon.ts'
import { linesOf } from '../protocol/lines.ts'
import { DataDirLock, holderText, inspectLock } from './lock.ts'

/** Time for a daemon to stop. */
const HOLDER_STOP_MS = 15_000
const POLL_MS = 50
/** A draining daemon reports each second. One that is silent for this long hangs. */
const SILENCE_MS = 30 * DRAIN_REPORT_MS

export interface ReplaceInit extends Pick<DaemonConfig, 'acl_signers' | 'exec_acl' | 'exec_acl_explicit' | 'paths'> {
  /** How long the daemon may finish its work. With 0, it stops at once. */
  readonly drainMs: number
  /** Called while the daemon finishes its work. */
  onProgress(leftMs: number, work: WorkList): Promise<void>
  /** Called when the daemon stops, with the work that it ends. Null if an earlier release does not tell. */
  onEnding(ended: WorkList | null): Promise<void>
}

/**
 * Stops the daemon that holds the data directory, if any, and waits for its end. Resolves to the lock that keeps other processes from
 * taking its place, until the caller has it. Throws `bad_acl` before a stop, and `conflict`.
 */
export const replaceHolder = async (init: ReplaceInit, clock: Clock): Promise<DataDirLock | null> => {
  const { exec_acl, exec_acl_explicit, paths } = init
  const { missing, problems } = await inspectAcl(exec_acl, null, { dataDir: paths.dir, signing: await aclSigningOf(init) })
  if (problems.length > 0 && (exec_acl_explicit || !missing))
    throw new AppError('bad_acl', problems.join('\n'), { data: { file: exec_acl } })
  if ((await inspectLock(paths)).kind !== 'held') return null
  const what = `the daemon of ${paths.dir} is being replaced`
  const lock = new DataDirLock({ lock: paths.successorLock, pid: paths.successorPid, apiSocket: null, what, holder: 'x0xd' })
  await lock.start()
  try {
    await endHolder(init, clock)
    return lock
  } catch (error) {
    await lock.stop()
    throw error
  }
}

const endHolder = async (init: ReplaceInit, clock: Clock): Promise<void> => {
  const { paths, drainMs, onEnding } = init
  const before = await inspectLock(paths)
  if (before.kind !== 'held') return
  const { holder } = before
  const socket = holder === null ? null : await dialService(paths.handoverSocket)
  if (socket !== null) {
    await handOver(socket, init, clock)
  } else {
    if (drainMs > 0) throw cannotDrain(holder)
    endBySignal(paths, holder)
    await onEnding(null)
  }
  await waitForEnd(paths, holder)
}

const cannotDrain = (holder: ProcessIdentity | null): AppError =>
  new AppError('conflict', `${holderText(holder)} cannot be drained: it is of an earlier release, or belongs to another user`, {
    data: { next: 'Try: the same command without --drain   (ends its runs)' },
  })

const endBySignal = (paths: DataPaths, holder: ProcessIdentity | null): void => {
  const cannotEnd = (): string => `${paths.dir} is in use by ${holderText(holder)}, which this program cannot stop`
  // If the system does not tell when a process began, the process may be any.
  if (holder === null || holder.started === '0' || processState(holder) !== 'alive') throw new AppError('conflict', cannotEnd())
  try {
    process.kill(holder.pid, 'SIGTERM')
  } catch (error) {
    // It may have ended a moment ago.
    if (errnoOf(error) !== 'ESRCH') throw new AppError('conflict', cannotEnd(), { cause: error })
  }
}

/** Resolves when the daemon stops, or has died. Throws `conflict`. */
const handOver = async (socket: Socket, { drainMs, onProgress, onEnding }: ReplaceInit, clock: Clock): Promise<void> => {
  socket.write(`${JSON.stringify({ drain_ms: drainMs })}\n`)
  const events = eventsOf(socket)
  try {
    for (let patience = HANDOVER_OPEN_MS; ; patience = SILENCE_MS) {
      const next = await within(clock, patience, events.next())
      if (next === null) throw new AppError('conflict', 'the running daemon does not answer; nothing was started')
      // It was killed. Its successor ends what it left.
      if (next.done === true) return
      const event = next.value
      if (event.type === 'refused') throw new AppError('conflict', `the running daemon cannot be replaced: ${event.message}`)
      if (event.type === 'ending') return await onEnding(event)
      await onProgress(event.left_ms, event)
    }
  } finally {
    // A daemon that is not ending accepts new runs again.
    socket.destroy()
  }
}

async function* eventsOf(socket: Socket): AsyncGenerator<HandoverEvent, void, undefined> {
  try {
    const tooLong = (): Error => new SyntaxError('a line is too long')
    for await (const line of linesOf(socket, MAX_WORK_JSON + MAX_WORK_JSON, tooLong)) yield readHandoverEvent(JSON.parse(line.toString()))
  } catch (error) {
    if (error instanceof SyntaxError) throw new AppError('conflict', `the running daemon is of another release: ${error.message}`)
    // Its process has ended.
    if (errnoOf(error) === undefined) throw error
  }
}

const waitForEnd = async (paths: DataPaths, holder: ProcessIdentity | null): Promise<void> => {
  for (let waited = 0; waited < HOLDER_STOP_MS; waited += POLL_MS) {
    if ((await inspectLock(paths)).kind === 'free') return
    await sleep(POLL_MS)
  }
  throw new AppError('conflict', `${holderText(holder)} does not end; nothing was started`)
}
