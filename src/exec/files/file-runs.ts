import type { Clock } from '../../base/clock.ts'
import { AppError, type ErrorCode, isAppError } from '../../base/errors.ts'
import { KeyedSemaphore } from '../../base/semaphore.ts'
import { Condition } from '../../base/wait-queue.ts'
import { denialText } from '../../protocol/denial-text.ts'
import { type FileCommand, fileCommandArgv, readFileError } from '../../protocol/file-command.ts'
import { MAX_FILE_ERROR_BYTES } from '../../protocol/limits/files.ts'
import type { AgentId } from '../../protocol/ids.ts'
import type { FieldTable, Sent } from '../../protocol/json-table.ts'
import type { ExecClient } from '../client.ts'
import type { RunEvent, RunOutcome, StdinSource, WaitingEvent } from '../run-spec.ts'
import { ObjectOutput } from './file-answers.ts'

/** Runs of file commands on one agent at once: the default of `max_concurrent_per_agent`. */
const MAX_FILE_RUNS_PER_AGENT = 4
/** How long a file command is repeated while the target has too many runs or cannot be reached, … */
const REPEAT_MS = 30_000
/** … with pauses from this, … */
const FIRST_PAUSE_MS = 100
/** … doubled each time, up to this. */
const LONGEST_PAUSE_MS = 4_000

/** How long a `@write` may take, because its chunk is in memory. At 10 kB/s, a chunk takes as long. */
const WRITE_TIMEOUT_MS = 30 * 60_000

/** Errors of a connection that was lost a moment ago. */
const LOST: readonly ErrorCode[] = ['peer_unreachable', 'peer_rejected', 'timeout']

export interface FileTarget {
  readonly agent_id: AgentId
  /** The name that the user gave, for messages. */
  readonly host: string
  /** Called when a run waits for an approval, and at each change of the wait. */
  readonly onWaiting?: (event: WaitingEvent) => void
}

/** One run of a file command. */
export interface FileRun {
  readonly target: FileTarget
  readonly command: FileCommand
  /** Makes stdin, again for each attempt. Absent without stdin. */
  readonly stdin?: () => StdinSource
  /** The target has begun to perform it. */
  readonly onStarted?: () => void
  readonly onOutput: (data: Uint8Array) => void | Promise<void>
}

/** The error of a denial. `data` has what the result of a denied run has. */
const denialOf = ({ target, command }: FileRun, { request_id, agent_id, machine_id }: RunOutcome, denial_reason: string): AppError => {
  const argv = fileCommandArgv(command)
  const { what, next } = denialText(denial_reason, { host: target.host, argv })
  return new AppError('command_denied', what, { data: { denial_reason, request_id, agent_id, machine_id, argv, next: next.join('\n') } })
}

/** The error that the target wrote, by its code. */
const fileErrorOf = ({ command: { path } }: FileRun, { request_id }: RunOutcome, stderr: string): AppError | null => {
  const told = readFileError(stderr)
  if (told === null) return null
  const { message, code } = told
  return new AppError(code === 'ENOENT' ? 'file_not_found' : 'file_error', `${message} (${code})`, { data: { code, path, request_id } })
}

/** Why a run did not do its command, or null if it did. */
const failureOf = (run: FileRun, outcome: RunOutcome, stderr: string): AppError | null => {
  const { target, command } = run
  const { denial_reason, incomplete, code, signal, truncated, request_id } = outcome
  // These warnings do not concern the run.
  const warnings = outcome.warnings.filter((kind) => kind !== 'target_draining' && kind !== 'timeout_clamped')
  if (denial_reason !== null) return denialOf(run, outcome, denial_reason)
  if (incomplete) {
    const why = outcome.message ?? 'the connection was lost'
    const data = { request_id, incomplete: true, next: 'Try: run the same command again' }
    return new AppError('peer_unreachable', `lost contact with ${target.host} (incomplete): ${why}`, { data })
  }
  if (code === 0 && !truncated) return null
  const said = code === 1 && warnings.length === 0 ? fileErrorOf(run, outcome, stderr) : null
  if (said !== null) return said
  const end = warnings.length > 0 ? warnings.join(', ') : signal === null ? `exit status ${code}` : `signal ${signal}`
  return new AppError('file_error', `${command.path}: ${target.host} stopped @${command.op} (${end})`, { data: { warnings, request_id } })
}

/** How one attempt ended. */
interface Attempt {
  readonly failure: AppError | null
  /** The failure may be over soon. */
  readonly mayRepeat: boolean
}

/** False for a change that fails if it was made already. */
const isRepeatable = (command: FileCommand): boolean =>
  command.op !== 'append' && (command.op !== 'write' || (command.finish?.expect ?? null) === null)

/** Performs file commands on other agents, each as a run. */
export class FileRuns {
  readonly #deps: { readonly runner: Pick<ExecClient, 'run'>; readonly clock: Clock }
  readonly #slots = new KeyedSemaphore<AgentId>({ limit: MAX_FILE_RUNS_PER_AGENT })
  /** Runs that wait for an approval. */
  readonly #waiting = new Map<object, AgentId>()

  constructor(deps: { readonly runner: Pick<ExecClient, 'run'>; readonly clock: Clock }) {
    this.#deps = deps
  }

  /**
   * Resolves when the target has performed the command and all output was taken. Repeats it while the target has too many runs, or after a
   * lost connection. Throws `command_denied` (with `data.denial_reason`), `file_not_found` and `file_error` (with `data.code`),
   * `peer_unreachable`, the errors of `ExecClient.run`, and the signal's reason.
   */
  async run(run: FileRun, signal: AbortSignal): Promise<void> {
    const leave = await this.#slots.acquire(run.target.agent_id, signal)
    try {
      await this.#untilDone(run, signal)
    } finally {
      leave()
    }
  }

  /** Runs a command that prints one object, and returns the object. Throws as `run`, and `file_error` for other output. */
  async ask<S extends FieldTable>(run: Omit<FileRun, 'onOutput'>, stated: S, signal: AbortSignal): Promise<Sent<S>> {
    const output = new ObjectOutput()
    await this.run({ ...run, onOutput: (data) => output.push(data) }, signal)
    return output.result(stated)
  }

  async #untilDone(run: FileRun, signal: AbortSignal): Promise<void> {
    const { clock } = this.#deps
    const end = clock.monotonic() + REPEAT_MS
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const { failure, mayRepeat } = await this.#once(run, signal)
      // A cancelled run has an outcome too.
      signal.throwIfAborted()
      if (failure === null) return
      // The target accepts further approval requests when a person has decided about some of those that wait.
      const isOver = clock.monotonic() + pause > end && ![...this.#waiting.values()].includes(run.target.agent_id)
      if (!mayRepeat || isOver) throw failure
      await new Condition().waitAtMost({ clock, timeoutMs: pause, signal })
      signal.throwIfAborted()
    }
  }

  /** A repeated command must have the same effect, and its output must not be taken twice. */
  async #once(run: FileRun, signal: AbortSignal): Promise<Attempt> {
    const { target, command, stdin } = run
    const stderr: Uint8Array[] = []
    let room = MAX_FILE_ERROR_BYTES
    let hasOutput = false
    const event = (event: RunEvent): void | Promise<void> => {
      if (event.type === 'started') run.onStarted?.()
      if (event.type === 'waiting_for_approval') {
        this.#waiting.set(spec, target.agent_id)
        target.onWaiting?.(event)
      }
      if (event.type === 'stdout') {
        hasOutput = true
        return run.onOutput(event.data)
      }
      if (event.type !== 'stderr' || room === 0) return undefined
      stderr.push(event.data.subarray(0, room))
      room = Math.max(0, room - event.data.length)
    }
    const spec = {
      agent_id: target.agent_id,
      argv: fileCommandArgv(command),
      stdin: stdin?.() ?? null,
      timeout_ms: command.op === 'write' ? WRITE_TIMEOUT_MS : null,
      cwd: null,
      clamp: true,
    }
    try {
      const outcome = await this.#deps.runner.run(spec, { event }, signal)
      const failure = failureOf(run, outcome, Buffer.concat(stderr).toString('utf8'))
      const isBusy = outcome.denial_reason === 'concurrency_limit_reached'
      return { failure, mayRepeat: isBusy || (outcome.incomplete && !hasOutput && isRepeatable(command)) }
    } catch (error) {
      // In the middle of a copy, the target was reachable a moment ago.
      const isMidway = 'offset' in command && command.offset > 0
      if (isMidway && !hasOutput && isAppError(error) && LOST.includes(error.code)) return { failure: error, mayRepeat: true }
      throw error
    } finally {
      this.#waiting.delete(spec)
    }
  }
}
