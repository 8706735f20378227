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
import { contentBytes } from '../content-bytes.ts'
import { parseWith } from '../validation.ts'
import { Base64 } from './message.ts'
import { RpcProcess } from './process.ts'
import { paramsOf } from './schemas.ts'
import {
  type Answered,
  type CallContext,
  type CallSubject,
  type MethodsComponents,
  type MethodsInit,
  SessionMethods,
  callerLeft,
} from './session-methods.ts'
import type { RpcSession } from './sessions.ts'

/** A shell is only another program: its text becomes the last token, or a text of ours is, and the tokens stand behind it as they are. */
export const argvOf = ({ argv, command, shell, login }: Params<'exec.start'>): readonly string[] => {
  const asLogin = login ? ['-l'] : []
  if (shell) {
    if (command === undefined || argv !== undefined) throw new AppError('bad_request', 'shell: true takes a command, and no argv')
    return ['/bin/sh', ...asLogin, '-c', command]
  }
  if (command !== undefined) throw new AppError('bad_request', 'command: only with shell: true; without it, argv is a list of strings')
  if (argv === undefined) throw new AppError('bad_request', 'argv: missing; expected a list of strings')
  return login ? ['/bin/sh', ...asLogin, '-c', 'exec "$0" "$@"', ...argv] : argv
}

/** What the executor is asked for. Throws `bad_request`, `resource_limit`. */
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
    // A login shell is one, whatever it starts.
    shell: params.shell || params.login,
    cwd: params.cwd ?? null,
    env: params.env,
    stdin: params.stdin === undefined ? NO_BYTES : contentBytes(params.stdin, params.stdin_encoding, 'stdin', MAX_INLINE_STDIN),
    input: params.stdin_open,
    // 0 asks for the usual time, as existing clients do.
    timeout_ms: params.timeout_ms === undefined || params.timeout_ms === 0 ? null : params.timeout_ms,
    max_output_bytes: params.max_output_bytes ?? null,
    fail_on_limit: params.fail_on_limit,
    detach: params.detach,
    terminal,
    ...(wish && { wish }),
  }
}

/** How long a program is held, and `exec.wait` without a time goes on, while nobody asks over HTTP for what it wrote. */
export const UNREAD_MS = 60_000

/** What a terminal has in place of the pipes of a process. */
const NO_STDIN = { stdin_encoding: 'utf8', fail_on_limit: false, detach: false } as const

/** Bytes that are no UTF-8 become U+FFFD, and `lossy` says so. */
const encode = (bytes: Uint8Array, encoding: 'utf8' | 'base64'): { content: string | Base64; lossy?: true } => {
  if (encoding === 'base64') return { content: new Base64(bytes) }
  const content = new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)
  return isUtf8(bytes) ? { content } : { content, lossy: true }
}

const timeText = (time: string | number | undefined): string | null => (time === undefined ? null : String(time))

/** The methods of REXD/1 for one connection, and the sessions that it has opened. Each is one call of the executor, or an answer from what its events said. */
export class Methods {
  readonly #components: MethodsComponents
  readonly #sessions: SessionMethods
  readonly #left = new AbortController()

  constructor(components: MethodsComponents, init: MethodsInit) {
    this.#components = components
    this.#sessions = new SessionMethods(components, init)
  }

  /** Whoever starts a program in this session may wait for a human: one of this host, or one of its target. */
  mayAsk(session: unknown): boolean {
    return this.#components.executor.mayAsk === true || this.#sessions.targetOf(session) !== null
  }

  /** Throws an `AppError`, `bad_request` where the params do not fit. */
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

  /** The connection is gone: nobody waits, and everything that it had running is ended. */
  async close(): Promise<void> {
    await this.#sessions.leave()
    this.#left.abort(callerLeft())
  }

  readonly #handlers: { readonly [M in Method]: (params: Params<M>, context: CallContext) => Promise<Answered> } = {
    'session.open': async (params) => this.#sessions.open(params),
    'session.close': async ({ session_id }) => ({
      result: { ok: true, terminated: await this.#components.sessions.end(this.#session(session_id)) },
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
    'fs.write': async ({ session_id, path, content, encoding, expected_mtime, ...rest }) => {
      const data = contentBytes(content, encoding, 'content', MAX_FILE_CHUNK)
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

  /** Of this connection alone. Throws `unknown_session`. */
  #session(id: string): RpcSession {
    return this.#sessions.get(id)
  }

  /** Its own, or one that has outlived its session, for who may have such. Throws `unknown_process`. */
  #process(sessionId: string, id: string): RpcProcess {
    const session = this.#session(sessionId)
    const { detached } = this.#components.sessions
    const process = session.processes.find(id) ?? (session.mayDetach ? detached.find(id) : null)
    if (process === null) throw new AppError('unknown_process', undefined, { data: { process_id: id.slice(0, 64) } })
    return process
  }

  /** For who waits: until they are gone, or the whole connection is. */
  #until(gone: AbortSignal | null): AbortSignal {
    return gone === null ? this.#left.signal : AbortSignal.any([this.#left.signal, gone])
  }

  async #wait({ session_id, process_id, timeout_ms }: Params<'exec.wait'>, { gone, place }: CallContext): Promise<Answered> {
    const process = this.#process(session_id, process_id)
    this.#session(session_id).events.waitedFor()
    // Whoever has a connection is sent events; others may have stopped asking for them, and would wait for themselves.
    const unreadMs = this.#components.send === null ? UNREAD_MS : null
    const patience = { timeoutMs: timeout_ms ?? null, unreadMs, signal: this.#until(gone) }
    return { result: await place.outside(async () => process.wait(patience)) }
  }

  async #start(params: Params<'exec.start'>, context: CallContext): Promise<Answered> {
    const { process, run } = await this.#begin(params, null, context)
    return { result: { process_id: process.id, ...startedOf(run) }, afterwards: () => process.release() }
  }

  /** Whoever sits at a terminal thinks for longer than a command runs: its time is the longest there is. */
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

  /** Its events wait until its caller knows its id. */
  async #begin(
    params: Params<'exec.start'>,
    terminal: TerminalSize | null,
    { id: call, place, ...context }: CallContext,
  ): Promise<{ process: RpcProcess; run: LocalRunHandle }> {
    const session = this.#session(params.session_id)
    session.requireRead()
    const { executor, clock, metrics, sessions } = this.#components
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
    // A human may take his time, and holds up no other call. Whoever is gone by then has a program in his session all the same.
    const run = await (this.mayAsk(session.id) ? place.outside(start).finally(() => gone.aborted && process.release()) : start())
    const failed = await run.begun
    if (failed?.denial_reason === 'audit_unavailable') {
      // Nobody is told its id, and so nothing of it.
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
    const { result, data } = await this.#components.executor.file(call)
    const { truncated, ...rest } = result as { size: number; mtime: string; mtime_ms: number; truncated: boolean }
    // No character is cut by a limit: whoever goes on behind these bytes begins with a whole one.
    const whole = encoding === 'utf8' && truncated ? data.subarray(0, data.length - unfinished(data)) : data
    // An answer without a byte of it would be asked for again for ever.
    if (whole.length === 0 && data.length > 0)
      throw new AppError('bad_request', `length: the character at offset ${offset} is longer than ${data.length} bytes`, { data: { path } })
    return { result: { path, ...rest, encoding, ...encode(whole, encoding), truncated } }
  }

  async #file(call: FileCall): Promise<Answered> {
    this.#session(call.session)
    const { result } = await this.#components.executor.file(call)
    return { result: { path: call.path, ...result } }
  }
}

const startedOf = ({ startedAt, caps, ranOn = null, cuts = [] }: LocalRunHandle) => ({
  started_at: startedAt,
  ...caps,
  ...(ranOn === null ? {} : { ran_on: ranOn }),
  ...(cuts.length === 0 ? {} : { cut_wishes: cuts }),
})
