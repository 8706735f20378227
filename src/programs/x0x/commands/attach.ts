import { systemClock } from '../../../base/clock.ts'
import { AppError, errorCodeOf, isAppError } from '../../../base/errors.ts'
import { shellWord } from '../../../base/format.ts'
import { Condition } from '../../../base/wait-queue.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { isDaemonGone } from '../../../clients/daemon.ts'
import type { AttachedEventJson } from '../../../protocol/api/attached-events.ts'
import { type DetachedRunView, isOver } from '../../../protocol/api/detached-run.ts'
import { linesOf } from '../../../protocol/lines.ts'
import { fromBase64 } from '../../../protocol/text.ts'
import type { CliContext } from '../context.ts'
import { failureLines, printProblem, statusAsExec, usageError } from '../failure.ts'
import { EXIT_NOT_RUN, type ExitEvent, type RunFacts, detachedCutLines, outcomeLines, statusOf } from '../outcome.ts'
import { printJson, printNotice } from '../print.ts'
import { LiveOutput } from '../run-output.ts'
import { findRun } from './find-run.ts'

/** A base64 frame and its envelope. */
const MAX_EVENT_LINE = 1024 * 1024
const tooLong = (): Error => new RangeError(`an event is longer than ${MAX_EVENT_LINE} bytes`)

/** Interval and duration of attempts to reach a lost daemon. A restart takes about a second. */
const AGAIN_MS = 500
const PATIENCE_MS = 60_000

const fromOf = (text: string): number => {
  if (/^[0-9]{1,15}$/.test(text)) return Number(text)
  throw usageError(`--from must be a number of bytes, not ${JSON.stringify(text)}`)
}

export const attachCommand = (id: string, next: number): string => `x0x attach ${shellWord(id)}${next === 0 ? '' : ` --from ${next}`}`

/** The text for an end without a signed Exit. */
export const lostLines = (run: DetachedRunView): string[] => [
  `lost: the executor of the target was restarted during the run; the result is not known`,
  `Try, on ${shellWord(run.agent ?? run.agent_id)}: x0x audit tail   (request ${run.request_id})`,
]

export const factsOf = (run: DetachedRunView, own: RunFacts['own'] = null): RunFacts => ({
  agent: run.agent ?? run.agent_id,
  argv: run.argv,
  timed: false,
  detached: true,
  own,
})

/** One `x0x attach`: copies output as it comes, over restarts of the daemon, from the byte after the last written one. */
class Attachment {
  readonly #context: CliContext
  readonly #line: CommandLine
  readonly #run: DetachedRunView
  readonly #output: LiveOutput
  readonly #leaving = new AbortController()
  #next: number
  #left: NodeJS.Signals | null = null

  constructor(context: CliContext, init: { run: DetachedRunView; line: CommandLine; from: number }) {
    this.#context = context
    this.#run = init.run
    this.#line = init.line
    this.#next = init.from
    this.#output = new LiveOutput(context, { raw: init.line.has('raw'), agent: init.run.agent ?? init.run.agent_id })
  }

  async run(): Promise<number> {
    const stopListening = this.#context.onSignal((signal) => {
      this.#left ??= signal
      this.#leaving.abort()
    })
    try {
      return await this.#followDaemon()
    } catch (error) {
      if (this.#left !== null) return await this.#detached(this.#left)
      await printProblem(this.#context, failureLines(error))
      if (isAppError(error, 'bad_request')) return EXIT_NOT_RUN
      await printProblem(this.#context, [`to continue: ${attachCommand(this.#run.request_id, this.#next)}`])
      return EXIT_NOT_RUN
    } finally {
      stopListening()
    }
  }

  async #detached(signal: NodeJS.Signals): Promise<number> {
    const goOn = attachCommand(this.#run.request_id, this.#next)
    await printProblem(this.#context, [`detached; the command continues. To see more output: ${goOn}`])
    return exitOfSignal(signal)
  }

  /** The daemon may restart meanwhile. The run goes on. */
  async #followDaemon(): Promise<number> {
    for (let since: number | null = null; ;) {
      try {
        const status = await this.#follow(() => (since = null))
        if (status !== null) return status
      } catch (error) {
        if (this.#left !== null || !isDaemonGone(error) || (since !== null && systemClock.monotonic() - since > PATIENCE_MS)) throw error
      }
      if (since === null) await printNotice(this.#context, 'lost contact with x0xd; the command continues, and x0x reconnects')
      since ??= systemClock.monotonic()
      await new Condition().waitAtMost({ clock: systemClock, timeoutMs: AGAIN_MS, signal: this.#leaving.signal })
      this.#leaving.signal.throwIfAborted()
    }
  }

  /** The exit status, or null if the daemon ended the answer before the run ended. */
  async #follow(onHeard: () => void): Promise<number | null> {
    const { request_id: id } = this.#run
    const path = `/runs/${id}/output?from=${this.#next}&follow=${!this.#line.has('no-follow')}`
    const headers = { accept: 'application/x-ndjson' }
    const body = await this.#context.api.open({ method: 'GET', path, headers, signal: this.#leaving.signal })
    for await (const line of linesOf(body, MAX_EVENT_LINE, tooLong)) {
      onHeard()
      const status = await this.#event(JSON.parse(line.toString('utf8')) as AttachedEventJson)
      if (status !== null) return status
    }
    return null
  }

  async #event(event: AttachedEventJson): Promise<number | null> {
    switch (event.type) {
      case 'state':
        if (event.state === 'waiting') await printNotice(this.#context, 'not started: it needs approval on the target')
        return null
      case 'started':
      case 'reattached':
        return null
      case 'stdout':
      case 'stderr': {
        const data = fromBase64(event.data_b64) ?? new Uint8Array(0)
        // Bytes handed to the stream will be written, even if a signal comes first.
        this.#next = event.offset + data.length
        return (await this.#output.data({ type: event.type, data })) ? null : EXIT_NOT_RUN
      }
      case 'warning':
        return (await this.#output.warning(event)) ? null : EXIT_NOT_RUN
      case 'error':
        throw new AppError(errorCodeOf(event.error), event.message, { data: { ...event.data } })
      case 'end':
        return this.#ended(event.state)
      case 'exit':
        return this.#exited(event)
    }
  }

  async #ended(state: DetachedRunView['state']): Promise<number> {
    await this.#output.exit()
    const { request_id } = this.#run
    if (isOver(state)) {
      const forgotten = [`expired: the target deleted the run; the output ends at byte ${this.#next}`]
      await printProblem(this.#context, state === 'lost' ? lostLines(this.#run) : forgotten)
      return EXIT_NOT_RUN
    }
    await printNotice(this.#context, `the command continues. To see more output: ${attachCommand(request_id, this.#next)}`)
    return 0
  }

  async #exited(exit: ExitEvent): Promise<number> {
    await this.#output.exit()
    await printProblem(this.#context, outcomeLines(exit, factsOf(this.#run)))
    return statusOf(exit)
  }
}

interface Gathered {
  readonly state: DetachedRunView['state']
  readonly outcome: Omit<ExitEvent, 'type'> | null
}

export const runAttach = async (context: CliContext, line: CommandLine): Promise<number> => {
  const from = fromOf(line.value('from') ?? '')
  return statusAsExec(context, async () => attachFrom(context, line, from))
}

const attachFrom = async (context: CliContext, line: CommandLine, from: number): Promise<number> => {
  const run = await findRun(context, line.words[0] ?? '')
  if (!context.json) return new Attachment(context, { run, line, from }).run()
  const path = `/runs/${run.request_id}/output?from=${from}&follow=${!line.has('no-follow')}`
  const answer = await context.api.json<Gathered>({ method: 'GET', path })
  await printJson(context, answer)
  if (answer.outcome !== null) {
    await printProblem(context, detachedCutLines({ ...run, outcome: answer.outcome }))
    return statusOf({ type: 'exit', ...answer.outcome })
  }
  return answer.state === 'lost' || answer.state === 'expired' ? EXIT_NOT_RUN : 0
}
