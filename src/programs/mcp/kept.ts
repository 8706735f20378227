import { NEVER } from '../../base/abortable.ts'
import { systemClock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { lifeOf } from '../../base/process-identity.ts'
import { shownLine, visibleJson } from '../../base/visible-text.ts'
import { Waiters } from '../../base/waiters.ts'
import { KEEPER_START_MS } from '../../protocol/tool-limits.ts'
import { lookAtLock } from '../../supervision/lock.ts'
import { keeperLink, keeperPlace, type KeeperChoice } from './keeper-place.ts'

/** What is told of a run, of `exec_list`. */
interface KeptRun {
  readonly run_id: string
  readonly command_line: string
  readonly state: string
  readonly started_at: string | null
  readonly timeout_ms: number | null
}

/** Between two looks whether a keeper has ended. */
const LOOK_MS = 100

/** How long a keeper may take to list what it holds. */
const LIST_MS = 10_000

interface Kept {
  readonly runs: readonly KeptRun[]
  readonly not_listed: number
}

const listRuns = async (choice: KeeperChoice): Promise<Kept> => {
  const link = keeperLink(choice)
  const late = new AbortController()
  const timer = systemClock.setTimeout(() => late.abort(new AppError('timeout', 'the keeper does not say what stays')), LIST_MS)
  try {
    const call = { name: 'exec_list', args: {}, signal: late.signal, isGone: () => true, progress: () => undefined }
    const answer = await link.call(call, { starts: false })
    if (answer === null) return { runs: [], not_listed: 0 }
    const { structuredContent: kept, content } = answer.result
    if (kept === undefined) throw new AppError('internal', `the keeper does not say what stays: ${JSON.stringify(content)}`)
    return kept as Kept
  } finally {
    timer.cancel()
    link.close()
  }
}

const lineOf = ({ run_id, state, started_at, timeout_ms, command_line }: KeptRun): string =>
  `${run_id}  ${state}  since ${started_at ?? '-'}  for ${timeout_ms === null ? '-' : `${timeout_ms / 1_000} s`}  ${shownLine(command_line)}\n`

/** Prints what stays, ended a short time ago included. */
export const printKept = async (choice: KeeperChoice, { json }: { readonly json: boolean }): Promise<number> => {
  const { runs, not_listed } = await listRuns(choice)
  if (json) process.stdout.write(`${visibleJson(JSON.stringify({ kept: runs, not_listed }))}\n`)
  else if (runs.length === 0) process.stdout.write('nothing stays\n')
  else process.stdout.write(`${runs.map(lineOf).join('')}${not_listed === 0 ? '' : `and ${not_listed} that are not listed\n`}`)
  return 0
}

/** Ends the keeper, and with it all that stays. */
export const endKept = async (choice: KeeperChoice): Promise<number> => {
  const { lock, pid } = keeperPlace(choice)
  const late = systemClock.monotonic() + KEEPER_START_MS
  const looks = new Waiters()
  let asked: number | null = null
  for (;;) {
    const held = await lookAtLock({ lock, pid })
    if (held.kind === 'unknown') throw new AppError('conflict', `${lock} cannot be looked at: whether anything stays is not known`)
    if (!('holder' in held)) break
    const { holder } = held
    if (holder !== null && lifeOf(holder) === 'alive' && asked !== holder.pid) {
      asked = holder.pid
      process.kill(holder.pid, 'SIGTERM')
    }
    if (systemClock.monotonic() > late)
      throw new AppError(
        'conflict',
        asked === null
          ? `${lock} is held, and ${pid} does not say by which process`
          : `the keeper (pid ${asked}) was asked to end and has not yet`,
      )
    await looks.wait({ clock: systemClock, timeoutMs: LOOK_MS, signal: NEVER })
  }
  process.stdout.write(asked === null ? 'nothing stays\n' : 'what stayed is ended\n')
  return 0
}
