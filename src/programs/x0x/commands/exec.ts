import type { Readable } from 'node:stream'
import { v7 as uuidv7 } from 'uuid'
import { AppError, errorCodeOf, isAppError } from '../../../base/errors.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import { write } from '../../../cli/output.ts'
import { millisecondsOf } from '../../../cli/parse.ts'
import type { ApiCall } from '../../../clients/daemon.ts'
import type { RunProver } from '../../../clients/operator.ts'
import { lightRandomBytes } from '../../../identity/light-hash.ts'
import { RAW_RUN_TYPE, type RunPart, runEventsOf } from '../../../protocol/api/run-events.ts'
import type { CliContext } from '../context.ts'
import { usageError, withAgent } from '../failure.ts'
import { EXIT_NOT_RUN, type ExitEvent, type RunFacts, endLines, statusOf } from '../outcome.ts'
import { ID_BEGINNING, proverOf, traceHeader } from '../request-headers.ts'
import { CollectedOutput, LiveOutput, type RunEventSink, followEvents } from '../run-output.ts'
import type * as StdinSource from '../stdin-source.ts'

export interface ExecCommandOptions {
  readonly agent: string
  readonly argv: readonly string[]
  /** Seconds, as typed. */
  readonly timeout: string | null
  /** The run label of its events, or null. */
  readonly session: string | null
  readonly stdinFile: string | null
  readonly raw: boolean
}

const timeoutMs = (text: string): number => {
  const ms = millisecondsOf(text)
  if (ms !== null) return ms
  throw usageError(`--timeout must be a positive number of seconds, not ${JSON.stringify(text)}`)
}

/** Loaded only for a command with stdin. */
const stdinSource = async (): Promise<typeof StdinSource> => import('../stdin-source.ts')

/** Printed if Ctrl-C could not be passed on. */
const NOT_TOLD = 'interrupted; the daemon did not answer, so the result of the command is not known'

/** One `x0x exec`: the request, the events, and the signals that end it. */
class ExecCommand {
  readonly #context: CliContext
  readonly #options: ExecCommandOptions
  readonly #output: RunEventSink
  readonly #closing = new AbortController()
  /** Chosen here, so that the run can be cancelled before its first event. By itself, uuid loads Web Crypto, which takes a millisecond. */
  readonly #requestId = uuidv7({ random: lightRandomBytes(16) })
  #stdin: StdinSource.CliStdin | null = null
  /** The request body if there is stdin. */
  #body: Readable | null = null
  #started = false
  #outputLost = false
  #interrupted: NodeJS.Signals | null = null
  /** Ends the progress line at the first output or end. */
  #heard: () => void = () => undefined

  constructor(context: CliContext, options: ExecCommandOptions) {
    this.#context = context
    this.#options = options
    this.#output = context.json ? new CollectedOutput(context) : new LiveOutput(context, options)
  }

  async run(): Promise<number> {
    const stopListening = this.#context.onSignal((signal) => this.#interrupt(signal))
    for (const output of [this.#context.stdout, this.#context.stderr]) output.on('error', () => (this.#outputLost = true))
    const { agent, stdinFile } = this.#options
    try {
      // No progress line while a user types stdin at the terminal.
      if (stdinFile === null) this.#heard = this.#context.progress.start(`no output of ${agent} yet`)
      return await this.#follow(await this.#askUntilBack())
    } catch (error) {
      // A signal before the start, or the second one, gives the status that a shell reports for a signal.
      const unheard = !this.#started || this.#closing.signal.aborted
      if (this.#interrupted !== null && unheard) return exitOfSignal(this.#interrupted)
      throw error
    } finally {
      this.#heard()
      await this.#output.waitedEnough()
      stopListening()
      this.#closing.abort()
      this.#body?.destroy()
      this.#stdin?.destroy()
    }
  }

  /** Waits for the successor of a daemon that drains. Stdin can be sent only once. */
  async #askUntilBack(): Promise<AsyncIterable<Uint8Array>> {
    try {
      return await this.#ask()
    } catch (error) {
      if (!isAppError(error, 'draining') || this.#options.stdinFile !== null) throw error
      const { askUntilBack } = await import('../other-commands.ts')
      return askUntilBack(this.#context, this.#closing.signal, async () => this.#ask())
    }
  }

  /**
   * Sends a proof if one can be made at once, because the daemon's journal then has the operator. A partial ID, or stdin without an end
   * yet, is first sent without a proof; few daemons require it.
   */
  async #ask(): Promise<AsyncIterable<Uint8Array>> {
    const { agent, stdinFile } = this.#options
    const request = this.#request()
    const prover = proverOf(this.#context)
    const able = typeof prover === 'function'
    const { api } = this.#context
    const stdin = stdinFile === null ? null : await (await stdinSource()).openStdin(stdinFile, this.#context.stdin, this.#closing.signal)
    this.#stdin = stdin
    if (able && !ID_BEGINNING.test(agent) && stdin?.declared !== null) return api.open(await this.#call(request, stdin, prover))
    try {
      return await api.open(await this.#call(request, stdin, null))
    } catch (error) {
      if (!isAppError(error, 'operator_proof_required')) throw error
      if (!able) throw prover
      return api.open(await this.#call(request, stdin && (await (await stdinSource()).declaredStdin(stdin)), prover))
    }
  }

  #request(): object {
    const { agent, argv, timeout, session } = this.#options
    const request = { agent, argv, clamp: true, request_id: this.#requestId, ...(session !== null && { session }) }
    return timeout === null ? request : { ...request, timeout_ms: timeoutMs(timeout) }
  }

  async #call(request: object, stdin: StdinSource.CliStdin | null, prover: RunProver | null): Promise<ApiCall> {
    const head = JSON.stringify({ ...request, ...stdin?.declared })
    const call = { method: 'POST', path: '/exec/run', signal: this.#closing.signal } as const
    const headers = { accept: RAW_RUN_TYPE, ...prover?.(head), ...traceHeader(this.#context.env) }
    if (stdin === null) return { ...call, headers, body: head }
    this.#body = (await stdinSource()).streamedBody(head, stdin)
    return { ...call, headers: { ...headers, 'content-type': 'application/x-ndjson' }, stream: this.#body }
  }

  /** The first signal asks for the end and waits for it. The second does not wait. Closing the request also cancels the run. */
  #interrupt(signal: NodeJS.Signals): void {
    const again = this.#interrupted !== null
    this.#interrupted = signal
    this.#heard()
    void this.#output.waitedEnough()
    if (again) void this.#leave()
    else void this.#cancel()
  }

  async #leave(): Promise<void> {
    this.#closing.abort()
    await write(this.#context.stderr, 'x0x: stopped waiting; the target stops the command, which can take up to 5 s\n')
  }

  async #cancel(): Promise<void> {
    try {
      await this.#context.api.json({ method: 'POST', path: '/exec/cancel', body: { request_id: this.#requestId } })
    } catch (error) {
      // The run has ended and its Exit is on the way. In any other case the closed request cancels it too.
      if (this.#started && isAppError(error, 'unknown_run')) return
      this.#closing.abort()
      if (this.#started) await write(this.#context.stderr, `x0x: ${NOT_TOLD}\n`)
    }
  }

  async #follow(answer: AsyncIterable<Uint8Array>): Promise<number> {
    return followEvents(runEventsOf(answer), this.#closing.signal, async (event) => this.#event(event))
  }

  /** The exit status when the run has ended or its output cannot be written; otherwise null. */
  async #event(event: RunPart): Promise<number | null> {
    this.#started = true
    if (event.type !== 'started') this.#heard()
    if (event.type === 'waiting_for_approval') return (await this.#output.waiting(event)) ? null : EXIT_NOT_RUN
    await this.#output.waitedEnough()
    switch (event.type) {
      case 'started':
        return null
      case 'stdout':
      case 'stderr':
        return (await this.#output.data(event)) ? null : EXIT_NOT_RUN
      case 'warning':
        return (await this.#output.warning(event)) ? null : EXIT_NOT_RUN
      case 'error':
        throw new AppError(errorCodeOf(event.error), event.message, { data: { ...event.data } })
      case 'exit':
        return this.#end(event)
    }
  }

  async #end(event: ExitEvent): Promise<number> {
    await this.#output.exit(event)
    // The explanation of a denial is loaded only for a denial.
    const linesOf = event.denial_reason === null ? endLines : (await import('../other-commands.ts')).outcomeLines
    const lines = this.#context.json ? [] : linesOf(event, await this.#facts(event))
    if (lines.length > 0) await (await import('../other-commands.ts')).printProblem(this.#context, lines)
    return this.#outputLost ? EXIT_NOT_RUN : statusOf(event)
  }

  /** The own agent is only asked for to explain a denial. */
  async #facts(event: ExitEvent): Promise<RunFacts> {
    const { agent, argv, timeout } = this.#options
    const facts = { agent, argv, timed: timeout !== null, interrupted: this.#interrupted !== null }
    if (event.denial_reason === null || this.#context.json) return { ...facts, own: null }
    return { ...facts, own: await this.#context.api.json<RunFacts['own']>({ method: 'GET', path: '/agent' }).catch(() => null) }
  }
}

/**
 * `x0x exec AGENT -- ARGV...`. Returns the exit status: the remote code, 128+n for a signal, and 255 for every failure on the way, so that
 * none looks like the remote command's own.
 */
export const runExec = async (context: CliContext, options: ExecCommandOptions): Promise<number> => {
  try {
    return await new ExecCommand(context, options).run()
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    // Failure texts are loaded with the other commands.
    const { reportFailure } = await import('../other-commands.ts')
    await reportFailure(context, withAgent(error, options.agent))
    return EXIT_NOT_RUN
  }
}
