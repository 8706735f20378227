import type { IncomingMessage } from 'node:http'
import { constants } from 'node:os'

import { AppError, errorText, isAppError, type ErrorCode, ERROR_TABLE } from '../../base/errors.ts'
import type { RunEventJson } from '../../protocol/run-json.ts'
import type { ApiCall } from '../../daemon/local-api.ts'
import type { CliContext } from '../context.ts'
import { reportFailure, usageError } from '../failure.ts'
import { linesOf } from '../lines.ts'
import { EXIT_NOT_RUN, exitOfSignal, outcomeLines, statusOf, type ExitEvent, type RunFacts } from '../outcome.ts'
import { write } from '../print.ts'
import { CollectedOutput, LiveOutput, type RunOutput } from '../run-output.ts'
import { openStdin, streamedBody } from '../stdin-source.ts'
import { shownLine } from '../terminal-text.ts'

export interface ExecOptions {
  readonly agent: string
  readonly argv: readonly string[]
  /** Seconds, as typed. */
  readonly timeout: string | null
  readonly stdinFile: string | null
  readonly raw: boolean
}

/** A reader that went away (`| head`) is no failure of the command; a shell reports it like this. */
const EXIT_READER_GONE = exitOfSignal(constants.signals.SIGPIPE)

/** `1.5` is 1500. Throws `bad_request` for anything that is no positive time. */
const timeoutMs = (text: string): number => {
  const ms = /^[0-9]{1,9}(?:\.[0-9]{1,3})?$/.test(text) ? Math.round(Number(text) * 1000) : 0
  if (ms >= 1) return ms
  throw usageError(`--timeout: ${JSON.stringify(text)} is not a number of seconds above 0, such as 30 or 2.5`)
}

/** One `x0x exec`: the request, the events, and the signals that end it. */
class ExecCommand {
  readonly #context: CliContext
  readonly #options: ExecOptions
  readonly #output: RunOutput
  readonly #closing = new AbortController()
  #requestId: string | null = null
  #interrupted: NodeJS.Signals | null = null

  constructor(context: CliContext, options: ExecOptions) {
    this.#context = context
    this.#options = options
    this.#output = context.json ? new CollectedOutput(context) : new LiveOutput(context, { raw: options.raw })
  }

  async run(): Promise<number> {
    const call = await this.#call()
    const stopListening = this.#context.onSignal((signal) => this.#interrupt(signal))
    // Both outputs may lose their reader at any moment; what that means is decided where we write.
    for (const output of [this.#context.stdout, this.#context.stderr]) output.on('error', ignore)
    try {
      const response = await this.#context.api.open(call)
      const id = response.headers['x-x0x-request-id']
      if (typeof id === 'string') this.#requestId = id
      if (this.#interrupted !== null) void this.#cancel()
      return await this.#follow(response)
    } catch (error) {
      if (this.#interrupted !== null && this.#closing.signal.aborted) return exitOfSignal(constants.signals[this.#interrupted])
      throw error
    } finally {
      stopListening()
      this.#closing.abort()
      call.stream?.destroy()
      for (const output of [this.#context.stdout, this.#context.stderr]) output.off('error', ignore)
    }
  }

  async #call(): Promise<ApiCall> {
    const { agent, argv, timeout, stdinFile } = this.#options
    const request = { agent, argv, clamp: true, ...(timeout === null ? {} : { timeout_ms: timeoutMs(timeout) }) }
    const call = { method: 'POST', path: '/exec/run', signal: this.#closing.signal } as const
    const headers = { accept: 'application/x-ndjson' }
    if (stdinFile === null) return { ...call, headers, body: request }
    const stdin = await openStdin(stdinFile, this.#context.stdin)
    return { ...call, headers: { ...headers, 'content-type': 'application/x-ndjson' }, stream: streamedBody(request, stdin) }
  }

  /** The first signal asks for the end and waits for it; the second does not wait. Closing the request cancels the run as well. */
  #interrupt(signal: NodeJS.Signals): void {
    const again = this.#interrupted !== null
    this.#interrupted = signal
    if (again || this.#requestId === null) this.#closing.abort()
    else void this.#cancel()
  }

  async #cancel(): Promise<void> {
    try {
      await this.#context.api.json({ method: 'POST', path: '/exec/cancel', body: { request_id: this.#requestId } })
    } catch (error) {
      // Already over: its Exit is on the way. Anything else: the closed request says it too.
      if (!isAppError(error, 'unknown_run')) this.#closing.abort()
    }
  }

  async #follow(response: IncomingMessage): Promise<number> {
    let brokeOff = ''
    try {
      for await (const line of linesOf(response)) {
        if (line === '') continue
        const status = await this.#event(JSON.parse(line) as RunEventJson)
        if (status !== null) return status
      }
    } catch (error) {
      if (isAppError(error) || this.#closing.signal.aborted) throw error
      brokeOff = ` (${errorText(error)})`
    }
    throw new AppError(
      'daemon_unreachable',
      `incomplete: the local daemon went away before the command ended${brokeOff}; it cancels what it asked for`,
    )
  }

  /** The exit status once the run is over or nobody reads any more, else null. */
  async #event(event: RunEventJson): Promise<number | null> {
    if (event.request_id !== null) this.#requestId ??= event.request_id
    switch (event.type) {
      case 'started':
        return null
      case 'stdout':
      case 'stderr':
        return (await this.#output.data(event)) ? null : EXIT_READER_GONE
      case 'warning':
        return (await this.#output.warning(event)) ? null : EXIT_READER_GONE
      case 'error':
        throw runError(event)
      case 'exit':
        return this.#end(event)
    }
  }

  async #end(event: ExitEvent): Promise<number> {
    await this.#output.exit(event)
    const lines = outcomeLines(event, await this.#facts(event))
    if (!this.#context.json) {
      await write(this.#context.stderr, lines.map((line, i) => `${i === 0 ? 'x0x: ' : '     '}${shownLine(line)}\n`).join(''))
    }
    return statusOf(event)
  }

  /** Who we are is asked only where a denial is explained. */
  async #facts(event: ExitEvent): Promise<RunFacts> {
    const { agent, argv } = this.#options
    if (event.denial_reason === null || this.#context.json) return { agent, argv, own: null }
    const own = await this.#context.api.json<{ agent_id: string; machine_id: string }>({ method: 'GET', path: '/agent' }).catch(() => null)
    return { agent, argv, own }
  }
}

const ignore = (): void => undefined

const runError = (event: Extract<RunEventJson, { type: 'error' }> & { data?: Record<string, unknown> }): AppError => {
  const code = Object.hasOwn(ERROR_TABLE, event.error) ? (event.error as ErrorCode) : 'internal'
  return new AppError(code, event.message, event.data === undefined ? {} : { data: event.data })
}

/**
 * `x0x exec AGENT -- ARGV...`. Answers the exit status: the remote code, 128+n for a signal, and 255
 * for every failure on the way, so that none looks like the remote command's own.
 */
export const runExec = async (context: CliContext, options: ExecOptions): Promise<number> => {
  try {
    return await new ExecCommand(context, options).run()
  } catch (error) {
    if (isAppError(error, 'bad_request')) throw error
    await reportFailure(context, context.json, error)
    return EXIT_NOT_RUN
  }
}
