import { isUtf8 } from 'node:buffer'
import type * as z from 'zod'
import { giveBack } from '../../base/buffers.ts'
import { AppError } from '../../base/errors.ts'
import type { FileCall, LocalRunHandle, LocalRunRequest, TerminalSize } from '../../executor-api/local.ts'
import { preferenceOf } from '../../protocol/api/exec-target.ts'
import { MAX_FILE_CHUNK, MAX_INLINE_STDIN, MAX_VARIABLE_TEXT } from '../../protocol/limits/rexd.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS } from '../../protocol/limits/wire.ts'
import type { FullParams as Params, Method } from '../../protocol/rexd/methods.ts'
import { unfinished } from '../../protocol/text.ts'
import { NO_BYTES } from '../../protocol/wire/schema.ts'
import { bounded, contentBytes } from '../content-bytes.ts'
import { parseWith } from '../validation.ts'
import { Base64 } from './message.ts'
import { RpcProcess } from './process.ts'
import { paramsOf } from './schemas.ts'
import {
  type Answered,
  type CallContext,
  type CallSubject,
  type RpcServices,
  type MethodsInit,
  SessionMethods,
  callerLeft,
} from './session-methods.ts'
import type { RpcSession } from './sessions.ts'

/** A shell runs the command as an argument of `-c`. For a login shell without a command, the argv follows a fixed script as separate tokens. */
export const argvOf = ({ argv, command, shell, login }: Params<'exec.start'>): readonly string[] => {
  const asLogin = login ? ['-l'] : []
  if (shell) {
    if (command === undefined || argv !== undefined) throw new AppError('bad_request', 'shell: true needs command, and no argv')
    return ['/bin/sh', ...asLogin, '-c', command]
  }
  if (command !== undefined) throw new AppError('bad_request', 'command: only with shell: true; without it, argv is a list of strings')
  if (argv === undefined) throw new AppError('bad_request', 'argv: missing; expected a list of strings')
  return login ? ['/bin/sh', ...asLogin, '-c', 'exec "$0" "$@"', ...argv] : argv
}

/** The request to the executor. Throws `bad_request`, `resource_limit`. */
export const runOf = (
  session: string,
  argv: readonly string[],
  params: Params<'exec.start'>,
  terminal: TerminalSize | null,
): LocalRunRequest => {
  if (argv.length > MAX_ARGV_TOKENS || argv.some((token) => Buffer.byteLength(token) > MAX_ARGV_BYTES))
    throw new AppError('bad_request', `argv: expected at most ${MAX_ARGV_TOKENS} texts of at most ${MAX_ARGV_BYTES} bytes`)
  if (Object.values(params.env).some((value) => Buffer.byteLength(value) > MAX_VARIABLE_TEXT))
    throw new AppError('bad_request', `env: expected texts of at most ${MAX_VARIABLE_TEXT} bytes`)
  const wish = preferenceOf(params)
  return {
    session,
    argv,
    // A login shell counts as a shell, even if it runs an argv.
    shell: params.shell || params.login,
    cwd: params.cwd ?? null,
    env: params.env,
    stdin: params.stdin === undefined ? NO_BYTES : contentBytes(params.stdin, params.stdin_encoding, 'stdin', MAX_INLINE_STDIN),
    input: params.stdin_open,
    // 0 selects the default, as existing clients expect.
    timeout_ms: params.timeout_ms === undefined || params.timeout_ms === 0 ? null : params.timeout_ms,
    max_output_bytes: params.max_output_bytes ?? null,
    fail_on_limit: params.fail_on_limit,
    detach: params.detach,
    terminal,
    ...(wish && { wish }),
  }
}

/** Without a connection: how long a process stays paused before `exec.wait` without a timeout fails, if the client does not read the events. */
export const UNREAD_MS = 60_000

/** Parameters that a terminal does not have. */
const NO_STDIN = { stdin_encoding: 'utf8', fail_on_limit: false, detach: false } as const

/** Bytes that are not UTF-8 become U+FFFD; `lossy` reports them. */
const encode = (bytes: Uint8Array, encoding: 'utf8' | 'base64'): { content: string | Base64; lossy?: true } => {
  if (encoding === 'base64') return { content: new Base64(bytes) }
  const content = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
  return isUtf8(bytes) ? { content } : { content, lossy: true }
}

const timeText = (time: string | number | undefined): string | null => (time === undefined ? null : String(time))

/** The methods of REXD/1 for one connection and its sessions. Each makes one call of the executor, or answers from the events it sent. */
export class Methods {
  readonly #deps: RpcServices
  readonly #sessions: SessionMethods
  readonly #left = new AbortController()

  constructor(deps: RpcServices, init: MethodsInit) {
    this.#deps = deps
    this.#sessions = new SessionMethods(deps, init)
  }

  /** Whether starting a program in this session may require an approval, on this machine or on the session's target. */
  mayAsk(session: unknown): boolean {
    return this.#deps.executor.mayAsk === true || this.#sessions.targetOf(session) !== null
  }

  /** Throws an `AppError`; `bad_request` for invalid parameters. */
  async call(method: Method, params: unknown, context: CallContext): Promise<Answered> {
    const handler = this.#handlers[method] as (params: unknown, context: CallContext) => Promise<Answered>
    const parsed = parseWith(paramsOf(method) as z.ZodType, params)
    const subject = { session_id: '', ...(parsed as Partial<CallSubject>) }
    try {
      return await this.#sessions.during(subject.session_id, async () => handler(parsed, context))
    } catch (error) {
      await this.#sessions.recordForeignAccess(method, subject, error)
      throw error
    }
  }

  /** The client is gone: ends its processes and all waits. */
  async close(): Promise<void> {
    await this.#sessions.leave()
    this.#left.abort(callerLeft())
  }

  readonly #handlers: { readonly [M in Method]: (params: Params<M>, context: CallContext) => Promise<Answered> } = {
    'session.open': async (params) => this.#sessions.open(params),
    'session.close': async ({ session_id }) => ({
      result: { ok: true, terminated: await this.#deps.sessions.end(this.#session(session_id)) },
    }),
    'session.info': async ({ session_id }) => ({ result: this.#sessions.info(this.#session(session_id)) }),
    'session.resume': async (params) => this.#sessions.resume(params),
    'session.events': async (params, { gone, place }) => ({ result: await this.#sessions.eventsOf(params, place, this.#until(gone)) }),
    'exec.start': async (params, context) => this.#start(params, context),
    'exec.wait': async (params, context) => this.#wait(params, context),
    'exec.kill': async ({ session_id, process_id, signal }) => {
      const isWithdrawn = [...this.#session(session_id).starting].some((one) => one.withdraw(process_id))
      return { result: { ok: isWithdrawn || this.#process(session_id, process_id).run.signal(signal) } }
    },
    'exec.input': async ({ session_id, process_id, data, encoding, eof }) => {
      const bytes = contentBytes(data, encoding, 'data', MAX_INLINE_STDIN)
      return { result: { accepted_bytes: this.#process(session_id, process_id).run.input(bytes, eof) } }
    },
    'pty.open': async (params, context) => this.#openTerminal(params, context),
    'pty.input': async ({ session_id, pty_id, data, encoding }) => {
      const bytes = contentBytes(data, encoding, 'data', MAX_INLINE_STDIN)
      return { result: { accepted_bytes: this.#session(session_id).terminal(pty_id).run.input(bytes, false) } }
    },
    'pty.resize': async ({ session_id, pty_id, cols, rows }) => {
      this.#session(session_id).terminal(pty_id).run.resize({ cols, rows })
      return { result: { ok: true } }
    },
    'pty.close': async ({ session_id, pty_id, kill }) => {
      const { run } = this.#session(session_id).terminal(pty_id)
      if (kill) run.hangUp()
      else run.signal('HUP')
      return { result: { ok: true } }
    },
    'fs.read': async (params) => this.#read(params),
    'fs.write': async ({ session_id, path, content, encoding, expected_mtime, ...rest }, { content: sent }) => {
      const data =
        sent === undefined ? contentBytes(content, encoding, 'content', MAX_FILE_CHUNK) : bounded(sent, 'content', MAX_FILE_CHUNK)
      const call = { method: 'fs.write', session: session_id, path, ...rest, expected_mtime: timeText(expected_mtime), data } as const
      const written = await this.#file(call)
      giveBack(data)
      return written
    },
    'fs.list': async ({ session_id, path, recursive, max_entries = null }) =>
      this.#file({ method: 'fs.list', session: session_id, path, recursive, max_entries }),
    'fs.glob': async ({ session_id, pattern, cwd = '.', max_matches = null }) =>
      this.#file({ method: 'fs.glob', session: session_id, path: cwd, pattern, max_matches }),
    'fs.stat': async ({ session_id, path }) => this.#file({ method: 'fs.stat', session: session_id, path }),
    'fs.edit': async ({ session_id, path, old_string, new_string, replace_all, expected_mtime }) =>
      this.#file({
        method: 'fs.edit',
        session: session_id,
        path,
        old_string: contentBytes(old_string, 'utf8', 'old_string', MAX_FILE_CHUNK),
        new_string: contentBytes(new_string, 'utf8', 'new_string', MAX_FILE_CHUNK),
        replace_all,
        expected_mtime: timeText(expected_mtime),
      }),
    'fs.patch': async ({ session_id, patch_text, cwd = '.' }) =>
      this.#file({
        method: 'fs.patch',
        session: session_id,
        path: cwd,
        patch_text: contentBytes(patch_text, 'utf8', 'patch_text', MAX_FILE_CHUNK),
      }),
  }

  /** A session of this connection. Throws `unknown_session`. */
  #session(id: string): RpcSession {
    return this.#sessions.get(id)
  }

  /** A process of the session, or a detached one if the session may detach. Throws `unknown_process`. */
  #process(sessionId: string, id: string): RpcProcess {
    const session = this.#session(sessionId)
    const { detached } = this.#deps.sessions
    const process = session.processes.find(id) ?? (session.mayDetach ? detached.find(id) : null)
    if (process === null) throw new AppError('unknown_process', undefined, { data: { process_id: id.slice(0, 64) } })
    return process
  }

  /** Aborts when the call or the whole connection is gone. */
  #until(gone: AbortSignal | null): AbortSignal {
    return gone === null ? this.#left.signal : AbortSignal.any([this.#left.signal, gone])
  }

  async #wait({ session_id, process_id, timeout_ms }: Params<'exec.wait'>, { gone, place }: CallContext): Promise<Answered> {
    const process = this.#process(session_id, process_id)
    this.#session(session_id).events.waitedFor()
    // A client without a connection has to fetch the events. If it stops doing so, its process would wait forever.
    const unreadMs = this.#deps.send === null ? UNREAD_MS : null
    const patience = { timeoutMs: timeout_ms ?? null, unreadMs, signal: this.#until(gone) }
    return { result: await place.outside(async () => process.wait(patience)) }
  }

  async #start(params: Params<'exec.start'>, context: CallContext): Promise<Answered> {
    const { process, run } = await this.#begin(params, null, context)
    return { result: { process_id: process.id, ...startedOf(run) }, afterwards: () => process.release() }
  }

  /** A terminal gets the longest allowed timeout, because a person may pause longer than a command runs. */
  async #openTerminal({ cols, rows, timeout_ms, ...rest }: Params<'pty.open'>, context: CallContext): Promise<Answered> {
    const { hard_timeout_ms: longest } = this.#session(rest.session_id).init.grant.limits
    const params = {
      ...NO_STDIN,
      ...rest,
      stdin_open: true,
      timeout_ms: timeout_ms === undefined || timeout_ms === 0 ? longest : timeout_ms,
    }
    const { process, run } = await this.#begin(params, { cols, rows }, context)
    const result = { pty_id: process.ptyId, process_id: process.id, ...startedOf(run) }
    return { result, afterwards: () => process.release() }
  }

  /** Events of the process wait until the client has its ID. */
  async #begin(
    params: Params<'exec.start'>,
    terminal: TerminalSize | null,
    { id: call, place, ...context }: CallContext,
  ): Promise<{ process: RpcProcess; run: LocalRunHandle }> {
    const session = this.#session(params.session_id)
    session.requireRead()
    const { executor, clock, metrics, sessions } = this.#deps
    const argv = argvOf(params)
    const gone = this.#until(context.gone)
    const init = {
      sessionId: session.id,
      call: params.tell_waiting ? call : undefined,
      argv,
      failOnLimit: params.fail_on_limit,
      terminal: terminal !== null,
      detached: params.detach,
    }
    const process = new RpcProcess({ emit: (method, params) => session.events.emit(method, params), clock, gone }, init)
    const start = async (): Promise<LocalRunHandle> => {
      session.starting.add(process)
      const asked = executor.start(runOf(session.id, argv, params, terminal), process)
      const run = await asked.finally(() => session.starting.delete(process))
      void process.attach(run)
      sessions.began(session, process)
      return run
    }
    // An approval may take long, so the call gives up its slot meanwhile. If the client disconnects, the process still belongs to its
    // session.
    const run = await (this.mayAsk(session.id) ? place.outside(start).finally(() => gone.aborted && process.release()) : start())
    const failed = await run.begun
    if (failed?.denial_reason === 'audit_unavailable') {
      // The client never learns the ID, so it gets no events.
      session.processes.remove(process)
      process.silence()
      process.release()
      throw new AppError('journal_unavailable')
    }
    metrics?.processStarted()
    void process.ended.then(() => metrics?.processEnded(process.status))
    return { process, run }
  }

  async #read({ session_id, path, offset, length: asked, encoding }: Params<'fs.read'>): Promise<Answered> {
    const call = { method: 'fs.read', session: this.#session(session_id).id, path, offset, length: asked ?? null } as const
    const { result, data } = await this.#deps.executor.file(call)
    const { truncated, ...rest } = result as { size: number; mtime: string; mtime_ms: number; truncated: boolean }
    // The limit never cuts a character, so the next read begins with a whole one.
    const whole = encoding === 'utf8' && truncated ? data.subarray(0, data.length - unfinished(data)) : data
    // An empty answer would make the client repeat the request forever.
    if (whole.length === 0 && data.length > 0)
      throw new AppError('bad_request', `length: the character at offset ${offset} is longer than ${data.length} bytes`, { data: { path } })
    return { result: { path, ...rest, encoding, ...encode(whole, encoding), truncated } }
  }

  async #file(call: FileCall): Promise<Answered> {
    this.#session(call.session)
    const { result } = await this.#deps.executor.file(call)
    return { result: { path: call.path, ...result } }
  }
}

const startedOf = ({ startedAt, caps, ranOn = null, cuts = [], notices = [] }: LocalRunHandle) => ({
  started_at: startedAt,
  ...caps,
  ...(ranOn === null ? {} : { ran_on: ranOn }),
  ...(cuts.length === 0 ? {} : { cut_wishes: cuts }),
  ...(notices.length === 0 ? {} : { notices }),
})
