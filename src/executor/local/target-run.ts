import type { LocalRunKey } from '../../audit/events.ts'
import { Due } from '../../base/due.ts'
import { AppError, errorText, ERROR_TABLE, type ErrorCode } from '../../base/errors.ts'
import type { TargetGrant } from '../../policy/local/authorize-target.ts'
import type { Slot } from '../../policy/slots.ts'
import { execFrame } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_FRAME_DATA, MAX_TEXT } from '../../protocol/limits.ts'
import type { RunPart } from '../../protocol/run-events.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import { Outbox, type Position, type UnackedTotal } from '../runs/outbox.ts'
import { localFrame } from '../port/local-messages.ts'
import type { EndCause } from '../runs/run.ts'
import type { RunOutlet } from '../runs/outlet.ts'
import { WARNING_TEXT } from '../runs/warning-text.ts'
import type { LocalJournal } from './local-journal.ts'
import type { TargetRunner } from './target-runner.ts'

/** What only the journal over there can say. */
const NOT_HERE = { stdin_sha256: null, request_sha256: null, executable: null, account: null }
const UNHASHED = { stdout_sha256: null, stderr_sha256: null }

export interface TargetRunComponents {
  readonly journal: LocalJournal
  readonly targets: TargetRunner
  readonly total: UnackedTotal
}

export interface TargetRunInit {
  readonly key: LocalRunKey
  readonly grant: TargetGrant
  readonly slot: Slot
  readonly outlet: RunOutlet
  readonly stdin: Uint8Array | null
  /** It is ended when output is dropped. */
  readonly failOnLimit: boolean
}

type Exit = Extract<RunPart, { type: 'exit' }>
type Output = Extract<RunPart, { data: Uint8Array }>

/** Signals that the mesh has: it can end a run, and no more. */
const ENDS: readonly string[] = ['SIGTERM', 'SIGINT', 'SIGKILL', 'SIGHUP']

/** A command of a session that runs on another agent: an ordinary run of the mesh, as far as this host can see it. */
export class TargetRun {
  readonly #components: TargetRunComponents
  readonly #init: TargetRunInit
  readonly #outbox: Outbox
  readonly #givenUp = new AbortController()
  readonly #ended = Promise.withResolvers<void>()
  #room: PromiseWithResolvers<void> | null = null
  #left: number
  /** What came, dropped bytes included. */
  readonly #came = { stdout: 0, stderr: 0 }
  #dropped = false
  #ending = false
  /** One question at a time: a caller may ask as often as it likes. */
  readonly #cancels = new Due<'cancel'>({ deliver: async () => this.#components.targets.cancel(this.requestId) })
  #over = false

  constructor(components: TargetRunComponents, init: TargetRunInit) {
    this.#components = components
    this.#init = init
    this.#left = init.grant.max_output_bytes
    this.#outbox = new Outbox({ total: components.total }, { requestId: this.requestId, onRoom: () => this.#room?.resolve() })
    this.#outbox.attach(init.outlet, { stdout: 0, stderr: 0 })
  }

  get requestId(): RequestId {
    return this.#init.key.request_id
  }

  /** Settles when all of it is told, or it was never begun. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  get program(): { signal(name: string): void; resize(): void; hangUp(): void } | null {
    if (this.#over) return null
    return { signal: (name) => this.#signal(name), resize: () => undefined, hangUp: () => this.end('cancelled') }
  }

  /** Asks the target; answers what tells the rest. Throws why it does not run: `command_denied`, or why nobody could be asked. */
  async ask(): Promise<() => Promise<void>> {
    try {
      await this.#requested()
      const parts = this.#parts()[Symbol.asyncIterator]()
      const first = await parts.next()
      if (first.done === true) throw new AppError('daemon_unreachable', 'the daemon did not say what became of the command')
      if (first.value.type === 'error') throw errorOf(first.value)
      if (first.value.type === 'exit' && first.value.denial_reason !== null) throw denied(this.#init.grant.target, first.value)
      const head = first.value
      return async () => this.#tell(head, parts)
    } catch (thrown) {
      const error = this.#givenUp.signal.aborted ? new AppError('unknown_session', 'its session was closed meanwhile') : thrown
      await this.#components.journal.refused({
        event: 'refused',
        ...this.#init.key,
        method: 'exec.start',
        argv: this.#init.grant.argv,
        ...told(error),
      })
      this.#settle()
      throw error
    }
  }

  acknowledged(position: Position): void {
    this.#outbox.ack(position)
  }

  acceptStdin(): void {
    throw new AppError('malformed', 'stdin that was not announced')
  }

  violated(): void {
    this.kill()
  }

  end(cause: EndCause): void {
    if (this.#over) return
    // Nobody reads any more: what the target still writes must not hold it.
    if (cause === 'peer_disconnected') this.#outbox.close()
    this.#ending = true
    this.#cancels.ask('cancel')
  }

  /** Does not wait for what the target says. */
  kill(): void {
    this.#givenUp.abort()
    this.#outbox.close()
    this.#room?.resolve()
  }

  async #requested(): Promise<void> {
    const { key, grant, stdin } = this.#init
    const { target, argv, timeout_ms } = grant
    const facts = {
      argv,
      matched_acl: 'security.allow_targets',
      stdin_bytes: stdin?.length ?? 0,
      timeout_ms,
      cwd: '',
      env: [],
      target,
      ...NOT_HERE,
    }
    await this.#components.journal.record({ event: 'request', ...key, ...facts })
  }

  #parts(): AsyncIterable<RunPart> {
    const { grant, stdin } = this.#init
    const { target, argv, timeout_ms } = grant
    return this.#components.targets.run({ target, argv, stdin, timeout_ms, request_id: this.requestId }, this.#givenUp.signal)
  }

  async #tell(first: RunPart, rest: AsyncIterator<RunPart>): Promise<void> {
    // The first time there may have been nothing to end yet.
    if (this.#ending) this.end('cancelled')
    let lost = 'the daemon went away before it told how the command ended'
    try {
      for (let part: RunPart | null = first; part !== null; part = await next(rest)) {
        if (part.type === 'exit') return await this.#exit(part)
        if (part.type === 'error') lost = part.message
        else await this.#take(part)
      }
    } catch (error) {
      lost = errorText(error)
    } finally {
      if (!this.#over) await this.#lost(lost)
      this.#settle()
    }
  }

  async #take(part: Exclude<RunPart, { type: 'exit' | 'error' }>): Promise<void> {
    if (part.type === 'started') {
      this.#outbox.note(execFrame.encode({ type: 'started', request_id: this.requestId, pid: part.pid }))
    } else if (part.type === 'warning') this.#warn(part.kind)
    else await this.#output(part)
  }

  async #output({ type, data }: Output): Promise<void> {
    this.#came[type] += data.length
    const taken = data.subarray(0, this.#left)
    this.#left -= taken.length
    for (let at = 0; at < taken.length; at += MAX_FRAME_DATA) {
      if (this.#outbox.push(type, taken.slice(at, at + MAX_FRAME_DATA))) continue
      this.#room = Promise.withResolvers<void>()
      await this.#room.promise
    }
    if (taken.length === data.length || this.#dropped) return
    this.#dropped = true
    this.#warn(`${type}_cap_hit`)
  }

  #warn(kind: WarningKind): void {
    if (kind.endsWith('_cap_hit') && kind !== 'duration_cap_hit' && this.#init.failOnLimit) this.end('cancelled')
    void this.#components.journal.note({ event: 'warning', ...this.#init.key, kind, bytes: null })
    this.#outbox.note(execFrame.encode({ type: 'warning', request_id: this.requestId, kind, message: WARNING_TEXT[kind] }))
  }

  async #exit(exit: Exit): Promise<void> {
    const { code, signal, duration_ms, stdout_bytes_total, stderr_bytes_total } = exit
    const truncated = exit.truncated || this.#dropped
    this.#over = true
    const line = { code, signal, duration_ms, stdout_bytes: stdout_bytes_total, stderr_bytes: stderr_bytes_total, truncated }
    await this.#components.journal.note({ event: 'exit', ...this.#init.key, ...UNHASHED, ...line })
    this.#say({ code, signal, duration_ms, stdout_bytes_total, stderr_bytes_total, truncated }, exit.incomplete ? lostText(exit) : null)
  }

  async #lost(why: string): Promise<void> {
    this.#over = true
    const { stdout, stderr } = this.#came
    const line = { code: null, signal: null, duration_ms: 0, truncated: true }
    await this.#components.journal.note({
      event: 'exit',
      ...this.#init.key,
      ...UNHASHED,
      ...line,
      stdout_bytes: stdout,
      stderr_bytes: stderr,
    })
    this.#say({ ...line, stdout_bytes_total: stdout, stderr_bytes_total: stderr }, why)
  }

  #say(
    facts: Pick<Exit, 'code' | 'signal' | 'duration_ms' | 'stdout_bytes_total' | 'stderr_bytes_total' | 'truncated'>,
    lost: string | null,
  ): void {
    const outcome = { request_id: this.requestId, ...facts, denial_reason: null, detail: null, lost: lost?.slice(0, MAX_TEXT / 4) ?? null }
    this.#outbox.finish(localFrame.encode({ type: 'outcome', ...outcome }))
  }

  #settle(): void {
    this.#over = true
    this.#init.slot.release()
    this.#outbox.flush()
    this.#outbox.close()
    this.#init.outlet.close()
    this.#ended.resolve()
  }

  #signal(name: string): void {
    if (ENDS.includes(name)) return this.end('cancelled')
    throw new AppError('unsupported_capability', `a run of a target can be ended (TERM, INT, HUP, KILL), and not be sent ${name}`)
  }
}

const next = async (parts: AsyncIterator<RunPart>): Promise<RunPart | null> => {
  const { done, value } = await parts.next()
  return done === true ? null : value
}

const lostText = ({ message }: Exit): string => message ?? 'the connection to the target was lost, or bytes are missing'

const errorOf = ({ error, message }: Extract<RunPart, { type: 'error' }>): AppError =>
  new AppError(Object.hasOwn(ERROR_TABLE, error) ? (error as ErrorCode) : 'internal', message)

const denied = (target: string, { denial_reason, request_id }: Exit): AppError =>
  new AppError('command_denied', `${target} denied it: ${String(denial_reason)}; \`x0x acl explain\` there says why`, {
    data: { target, reason: denial_reason, request_id },
  })

const told = (error: unknown): { readonly code: string; readonly detail: string } => ({
  code: error instanceof AppError ? error.code : 'internal',
  detail: errorText(error),
})
