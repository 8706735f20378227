import type { Readable } from 'node:stream'
import { v7 as uuidv7 } from 'uuid'
import { systemClock } from '../../../base/clock.ts'
import { AppError, errorCodeOf, isAppError } from '../../../base/errors.ts'
import { shellWord } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import { write } from '../../../cli/output.ts'
import { type CommandLine, millisecondsOf } from '../../../cli/parse.ts'
import { MANY_HOSTS } from '../../../cli/plain-exec.ts'
import type { RunProver } from '../../../clients/operator.ts'
import { TerminalBody, openTerminal } from '../../../clients/terminal-call.ts'
import type { TerminalPart } from '../../../protocol/api/run-events.ts'
import { SESSION_NOTICES, type SessionNotice } from '../../../protocol/reasons.ts'
import { isTermName } from '../../../protocol/wire/terminal.ts'
import type { CliContext } from '../context.ts'
import { carriedCommand, printProblem, reportFailure, usageError, withAgent } from '../failure.ts'
import { EXIT_NOT_RUN, type ExitEvent, type RunFacts, outcomeLines, statusOf } from '../outcome.ts'
import { ID_BEGINNING, proverOf, traceHeader } from '../request-headers.ts'
import { WaitingLine, type WarningEvent, drainingText, followEvents, warningText } from '../run-output.ts'
import { ESCAPE_HELP, EscapeKeys } from './escape-keys.ts'
import { LocalTerminal } from './local-terminal.ts'
import { TerminalOutputFilter } from './output-filter.ts'

interface TerminalOptions {
  readonly agent: string
  readonly argv: readonly string[]
  readonly timeoutMs: number | null
  readonly session: string | null
  /** All output passes to the local terminal. */
  readonly raw: boolean
}

const optionsOf = (context: CliContext, line: CommandLine): TerminalOptions => {
  const argv = carriedCommand(line, Infinity)
  const [agent = '', ...others] = line.words
  if (agent === '' || others.length > 0 || MANY_HOSTS.test(agent)) throw usageError('-t needs one host', 'Try: x0x exec -t bob -- htop')
  // Twice, as in -tt, forces a terminal.
  if (line.values('terminal').length < 2 && context.stdin.isTTY !== true)
    throw usageError('-t: standard input is not a terminal', 'Use -tt to run the command on a terminal all the same')
  const timeout = line.value('timeout')
  const timeoutMs = timeout === null ? null : millisecondsOf(timeout)
  if (timeout !== null && timeoutMs === null)
    throw usageError(`--timeout must be a positive number of seconds, not ${JSON.stringify(timeout)}`)
  return { agent, argv, timeoutMs, session: line.value('session'), raw: line.has('raw-terminal') }
}

/** The name of the local terminal's type. A target does not know names that are not plain. */
const termOf = ({ TERM: name = '' }: CliContext['env']): string => (isTermName(name) ? name : 'dumb')

/** Why the run ended before its exit: a key of the user, a signal, a full limit or a lost output. */
type Ending = 'closed' | 'output_limit' | 'output_lost' | NodeJS.Signals

/** One `x0x exec -t`: the request, the terminal, and what ends both. */
class TerminalCommand {
  readonly #context: CliContext
  readonly #options: TerminalOptions
  readonly #filter: TerminalOutputFilter
  readonly #terminal: LocalTerminal
  readonly #keys = new EscapeKeys()
  readonly #waiting: WaitingLine
  readonly #warnings: WarningEvent[] = []
  readonly #closing = new AbortController()
  readonly #requestId = uuidv7()
  #body: TerminalBody | null = null
  #ending: Ending | null = null
  #stopTyping: () => void = () => undefined

  constructor(context: CliContext, options: TerminalOptions) {
    this.#context = context
    this.#options = options
    this.#filter = new TerminalOutputFilter(options)
    this.#terminal = new LocalTerminal(context, { undo: () => this.#filter.end() })
    this.#waiting = new WaitingLine({ stderr: context.stderr, clock: systemClock }, options)
  }

  async run(): Promise<number> {
    const context = this.#context
    const stopListening = context.onSignal((signal) => this.#end(signal))
    for (const output of [context.stdout, context.stderr]) output.on('error', () => this.#end('output_lost'))
    const heard = context.progress.start(`no answer of ${this.#options.agent} yet`)
    try {
      const answer = await this.#ask()
      return await this.#follow(answer, heard)
    } catch (error) {
      if (this.#ending === null) throw error
      return await this.#ended(this.#ending)
    } finally {
      heard()
      await this.#waiting.end()
      await this.#leave()
      stopListening()
      this.#closing.abort()
      this.#body?.destroy()
    }
  }

  /** Sends a proof if one can be made at once, because the daemon's journal then has the operator. */
  async #ask(): Promise<AsyncIterable<TerminalPart>> {
    const { agent } = this.#options
    const prover = proverOf(this.#context)
    const able = typeof prover === 'function'
    if (able && !ID_BEGINNING.test(agent)) return this.#open(prover)
    try {
      return await this.#open(null)
    } catch (error) {
      if (!isAppError(error, 'operator_proof_required')) throw error
      if (!able) throw prover
      return this.#open(prover)
    }
  }

  async #open(prover: RunProver | null): Promise<AsyncIterable<TerminalPart>> {
    const { agent, argv, timeoutMs, session } = this.#options
    const terminal = { ...this.#terminal.size, term: termOf(this.#context.env) }
    this.#body = new TerminalBody({
      agent,
      argv,
      request_id: this.#requestId,
      ...(session !== null && { session }),
      ...(timeoutMs !== null && { timeout_ms: timeoutMs }),
      terminal,
    })
    return openTerminal(this.#context, this.#body, { prover, headers: traceHeader(this.#context.env), signal: this.#closing.signal })
  }

  async #follow(parts: AsyncIterable<TerminalPart>, heard: () => void): Promise<number> {
    return followEvents(parts, this.#closing.signal, async (event) => {
      heard()
      return this.#event(event)
    })
  }

  /** The exit status when the run has ended, otherwise null. */
  async #event(event: TerminalPart): Promise<number | null> {
    if (event.type === 'waiting_for_approval') {
      if (!this.#context.quiet) await this.#waiting.show(event)
      return null
    }
    await this.#waiting.end()
    switch (event.type) {
      case 'started':
        this.#start()
        return null
      case 'stdout':
      case 'stderr':
        await write(this.#context.stdout, this.#filter.push(event.data))
        return null
      case 'warning': {
        if (event.kind === 'target_draining') {
          if (!this.#context.quiet) await write(this.#context.stderr, drainingText(this.#options.agent))
          return null
        }
        const notice = SESSION_NOTICES.find((kind) => kind === event.kind)
        if (notice !== undefined) return this.#tell(NOTICES[notice](shownLine(this.#options.agent)))
        this.#warnings.push(event)
        // A program whose output is not seen must not be typed into.
        if (event.kind === 'stdout_cap_hit') this.#end('output_limit')
        return null
      }
      case 'disconnected':
        return this.#tell(`connection to ${shownLine(this.#options.agent)} lost, retrying`)
      case 'resumed':
        await this.#tell('connected again')
        this.#redraw()
        return null
      case 'error':
        throw new AppError(errorCodeOf(event.error), event.message, { data: { ...event.data } })
      case 'exit':
        return this.#exited(event)
    }
  }

  /** The program runs. Until now, Ctrl-C was for this command. */
  #start(): void {
    const { stdin } = this.#context
    const stopResizing = this.#terminal.onResize(() => this.#body?.resize(this.#terminal.size))
    const type = (bytes: Buffer): void => this.#type(bytes, stdin)
    const close = (): void => {
      this.#body?.type(this.#keys.end())
      this.#body?.endOfFile()
    }
    this.#terminal.enterRaw()
    // The window may have changed since the request.
    this.#body?.resize(this.#terminal.size)
    stdin.on('data', type).on('end', close).on('error', close)
    this.#stopTyping = () => {
      stopResizing()
      stdin.off('data', type).off('end', close).off('error', close)
      stdin.pause()
    }
  }

  /** A program that reads slowly stops the reading of keys and pastes. */
  #type(bytes: Uint8Array, stdin: Readable): void {
    for (let rest = bytes; rest.length > 0;) {
      const { data, does, rest: after } = this.#keys.take(rest)
      rest = after
      if (data.length > 0 && this.#body?.type(data) === false) {
        stdin.pause()
        this.#body.once('drain', () => stdin.resume())
      }
      if (does === 'end') return this.#end('closed')
      if (does === 'help') void write(this.#context.stderr, ['', ...ESCAPE_HELP, ''].join('\r\n'))
    }
  }

  /** Full-screen programs draw again after a change of the size. */
  #redraw(): void {
    if (!this.#filter.isAlternate) return
    const { columns, rows } = this.#terminal.size
    if (rows > 1) this.#body?.resize({ columns, rows: rows - 1 })
    setTimeout(() => this.#body?.resize(this.#terminal.size), REDRAW_MS).unref()
  }

  async #tell(text: string): Promise<null> {
    if (!this.#context.quiet) await write(this.#context.stderr, `\r\n[x0x: ${text}]\r\n`)
    return null
  }

  /** Closing the request cancels the run. */
  #end(why: Ending): void {
    this.#ending ??= why
    this.#closing.abort()
  }

  /** Gives the terminal back. */
  async #leave(): Promise<void> {
    this.#stopTyping()
    this.#stopTyping = () => undefined
    const text = this.#terminal.restore()
    if (text !== '') await write(this.#context.stdout, text)
  }

  async #ended(why: Ending): Promise<number> {
    await this.#leave()
    const { agent } = this.#options
    if (why === 'output_limit') {
      const next = `Try, on ${shellWord(agent)}: raise max_stdout_bytes in the ACL`
      await printProblem(this.#context, ['stopped: the output limit of the target was reached (stdout_cap_hit)', next])
    } else if (why === 'closed') await printProblem(this.#context, [`connection to ${shellWord(agent)} closed`])
    const isOfSignal = why !== 'output_limit' && why !== 'closed' && why !== 'output_lost'
    return isOfSignal ? exitOfSignal(why) : EXIT_NOT_RUN
  }

  async #exited(event: ExitEvent): Promise<number> {
    await this.#leave()
    // Those that announce a limit were for a program that has ended.
    const shown = this.#warnings.filter(({ kind }) => !kind.endsWith('_approaching_cap') && !event.warnings.includes('cancelled'))
    const isQuiet = this.#context.quiet || event.denial_reason !== null
    for (const warning of isQuiet ? [] : shown) await write(this.#context.stderr, warningText(warning))
    const lines = outcomeLines(event, await this.#facts(event))
    if (lines.length > 0) await printProblem(this.#context, lines)
    return statusOf(event)
  }

  /** The own agent is only asked for to explain a denial. */
  async #facts(event: ExitEvent): Promise<RunFacts> {
    const { agent, argv, timeoutMs } = this.#options
    const facts = { agent, argv, timed: timeoutMs !== null, interrupted: this.#ending !== null }
    if (event.denial_reason === null) return { ...facts, own: null }
    return { ...facts, own: await this.#context.api.json<RunFacts['own']>({ method: 'GET', path: '/agent' }).catch(() => null) }
  }
}

/** Notices about other readers of the output. */
const NOTICES: Readonly<Record<SessionNotice, (agent: string) => string>> = {
  session_recorded: (agent) => `${agent} records what this command shows, and not what you type`,
  session_watchable: (agent) => `operators of ${agent} may look on`,
  session_watched: (agent) => `an operator of ${agent} looks on`,
}

/** A target applies a new size at once, and the next one some time later. */
const REDRAW_MS = 50

/**
 * `x0x exec -t AGENT -- ARGV...`. Returns the exit status of `x0x exec`: the remote code, 128+n for a signal, and 255 for every failure on
 * the way.
 */
export const runTerminal = async (context: CliContext, line: CommandLine): Promise<number> => {
  const options = optionsOf(context, line)
  try {
    return await new TerminalCommand(context, options).run()
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    await reportFailure(context, withAgent(error, options.agent))
    return EXIT_NOT_RUN
  }
}
