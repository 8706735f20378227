import { AppError, errorCodeOf, isAppError } from '../../../base/errors.ts'
import { counted } from '../../../base/format.ts'
import { pasteable } from '../../../base/hint.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { exitOfSignal } from '../../../cli/exit.ts'
import { isGone, write } from '../../../cli/output.ts'
import {
  FANOUT_ENDS,
  type FanoutEventJson,
  type FanoutHostJson,
  type FanoutLedgerJson,
  ledgerProblem,
} from '../../../protocol/api/fanout.ts'
import { foldNodeSet } from '../../../protocol/hosts/node-set.ts'
import type { WarningKind } from '../../../protocol/reasons.ts'
import type { CliContext } from '../context.ts'
import { printProblem, reportFailure } from '../failure.ts'
import { EXIT_NOT_RUN, KILLED_BY, type RunFacts } from '../outcome.ts'
import { waitingText } from '../run-output.ts'
import type { FanoutSource, FleetRequest } from './fanout-source.ts'
import { FleetHosts } from './fleet-hosts.ts'
import { type FleetLine, retryLine } from './fleet-line.ts'
import type { FleetProgress } from './fleet-progress.ts'
import { WENT_AWAY, brokenBy, countsLine, fittedLines, summaryLines } from './fleet-summary.ts'
import type { FleetView } from './line-views.ts'
import type { OutputStore } from './output-store.ts'

type Warning = Extract<FanoutEventJson, { type: 'warning' }>

/** Warnings that the host's end already reports, or that are only printed alone. */
const SAID_OTHERWISE: readonly WarningKind[] = ['cancelled', 'stdout_approaching_cap', 'stderr_approaching_cap', ...KILLED_BY]

/** Warnings of many hosts, each kind printed once. */
export class FleetWarnings {
  readonly #kinds = new Map<WarningKind, { readonly message: string; readonly hosts: string[] }>()

  add({ host, kind, message }: Warning): void {
    if (SAID_OTHERWISE.includes(kind)) return
    const same = this.#kinds.get(kind)
    if (same === undefined) this.#kinds.set(kind, { message, hosts: [host] })
    else same.hosts.push(host)
  }

  lines(): string[] {
    return [...this.#kinds].map(([kind, { message, hosts }]) => `warning: ${kind}: ${foldNodeSet(hosts)}: ${message}`)
  }
}

/** Exit status if the command failed on some hosts. */
const EXIT_FAILED = 1
/** Exit status if some hosts certainly did not run it completely. */
const EXIT_NOT_ALL_RAN = 3
/** Exit status if it is unknown whether some hosts ran it. */
const EXIT_UNKNOWN = 4

/** The exit status of a fan-out, which is that of the worst host. */
export const fleetStatus = (ledger: Omit<FanoutLedgerJson, 'type' | 'fanout_id' | 'ok' | 'asked' | 'ran'>): number => {
  if (ledger.unknown > 0) return EXIT_UNKNOWN
  if (ledger.denied + ledger.unreachable + ledger.not_started + ledger.cancelled > 0) return EXIT_NOT_ALL_RAN
  return ledger.failed > 0 ? EXIT_FAILED : 0
}

interface FleetRunComponents {
  readonly context: CliContext
  readonly view: FleetView
  /** Null if no output is stored. */
  readonly held: OutputStore | null
  readonly progress: FleetProgress
  /** Aborting closes the connection to the daemon, which cancels live runs. */
  readonly closing: AbortController
}

/** A fan-out with its request, its events, and the signals that end it. */
export class FleetRun {
  readonly #components: FleetRunComponents
  readonly #timed: boolean
  readonly #bounds: readonly string[]
  readonly #hosts = new FleetHosts()
  readonly #warnings = new FleetWarnings()
  readonly #stopListening: () => void
  #request: FleetRequest | null = null
  #source: FanoutSource | null = null
  #interrupted: NodeJS.Signals | null = null
  /** Standard output has no reader, so output is only counted in the ledger. */
  #readerGone = false
  /** Standard output cannot be written, as on a full disk. The stream itself does not remember this. */
  #isUnwritable = false
  /** Why the remaining hosts cannot report any more, or null if all have ended. */
  #brokeOff: string | null = null

  constructor(components: FleetRunComponents, init: Pick<FleetLine, 'bounds'> & { readonly timed: boolean }) {
    this.#components = components
    this.#timed = init.timed
    this.#bounds = init.bounds
    const { stdout, onSignal } = components.context
    const stop = onSignal((signal) => this.#interrupt(signal))
    const failed = (error: Error): void => void (this.#isUnwritable ||= !isGone(error))
    stdout.on('error', failed)
    this.#stopListening = () => {
      stdout.off('error', failed)
      stop()
    }
  }

  get interruptedStatus(): number | null {
    return this.#interrupted === null ? null : exitOfSignal(this.#interrupted)
  }

  close(): void {
    this.#stopListening()
    this.#components.closing.abort()
  }

  /** Returns the exit status. Throws if no host was asked, or if the asked hosts are unknown. */
  async run(request: FleetRequest, source: FanoutSource): Promise<number> {
    this.#request = request
    this.#source = source
    request.ledger?.onFailure(() => void this.#ledgerFailed())
    try {
      await this.#follow(await source.open(request, this.#components.closing.signal))
    } catch (error) {
      if (this.#hosts.isEmpty) return this.#nobodyAsked(request, error)
      this.#brokeOff ??= this.#components.closing.signal.aborted ? 'x0x did not wait for its end' : brokenBy(error)
    }
    return this.#finish(request)
  }

  /** The ledger already records this, because it names all hosts and shows that no host has started. */
  async #nobodyAsked({ argv, ledger }: FleetRequest, error: unknown): Promise<number> {
    await ledger?.close()
    if (this.#interrupted !== null) return exitOfSignal(this.#interrupted)
    if (ledger === null) throw error
    const { context } = this.#components
    await reportFailure(context, error)
    if (!context.json)
      await write(
        context.stderr,
        pasteable(`     no host was asked. Try: ${retryLine(ledger.path, argv, { bounds: this.#bounds })}\n`, context.given),
      )
    return EXIT_NOT_RUN
  }

  async #follow(events: AsyncIterable<FanoutEventJson>): Promise<void> {
    for await (const event of events) {
      const goesOn = await this.#event(this.#hosts.asAsked(event))
      if (event.type === 'ledger') return
      if (!goesOn && !(await this.#readerLeft())) return
    }
    if (this.#hosts.isEmpty) throw new AppError('daemon_unreachable', 'the local daemon stopped before it asked any host')
    this.#brokeOff = WENT_AWAY
  }

  /** False if the output has no reader. */
  async #event(event: FanoutEventJson): Promise<boolean> {
    const { view, progress } = this.#components
    switch (event.type) {
      case 'fanout':
        this.#hosts.add(event.hosts, new Map(this.#request!.hosts.map(({ host, agent_id }) => [agent_id, host])))
        if (event.more === true) return true
        view.start(this.#hosts.names)
        progress.asked(this.#hosts.names.length)
        return true
      case 'begun':
        this.#hosts.start(event.host, event.request_id)
        this.#request?.ledger?.add({ type: 'begun', host: event.host, request_id: event.request_id })
        progress.begun(event.host)
        return true
      case 'started':
        return true
      case 'stdout':
      case 'stderr':
        return this.#readerGone || view.output(event.host, { type: event.type, data: Buffer.from(event.data_b64, 'base64') })
      case 'warning':
        if (event.kind === 'target_draining') return this.#waiting(event.host, event.message)
        this.#warnings.add(event)
        return true
      case 'waiting_for_approval':
        return this.#waiting(event.host, waitingText(event, event.host, event.expires_in_ms))
      case 'host':
        return this.#ended(event)
      case 'ledger':
        return this.#sumsCame(event)
      case 'error':
        throw new AppError(errorCodeOf(event.error), event.message, { data: { ...event.data } })
    }
  }

  async #ended({ type: _type, ...end }: FanoutHostJson & { readonly type: 'host' }): Promise<boolean> {
    if (!this.#hosts.end(end)) return true
    this.#request?.ledger?.add({ type: 'host', ...end })
    this.#components.progress.ended(end)
    return this.#readerGone || this.#components.view.ended(end)
  }

  /** The hosts' ends are authoritative, not the daemon's sums. */
  #sumsCame(ledger: FanoutLedgerJson): true {
    const ours = this.#hosts.sums(ledger.fanout_id)
    const differs = [...FANOUT_ENDS, 'failed' as const].some((sum) => ours[sum] !== ledger[sum])
    const problem = ledgerProblem(ledger) ?? (differs ? 'different from those of its hosts' : null)
    if (problem !== null) this.#brokeOff = `the totals of the daemon are wrong: ${problem}`
    return true
  }

  async #waiting(host: string, text: string): Promise<boolean> {
    const { context, progress } = this.#components
    if (context.quiet || context.json) return true
    progress.clear()
    await write(context.stderr, `x0x: ${shownLine(`${host}: ${text}`)}\n`)
    return true
  }

  /** Called when output cannot be delivered. With a ledger or a terminal for messages, it continues to the end. True means that it continues. */
  async #readerLeft(): Promise<boolean> {
    this.#readerGone = true
    if (this.#request?.ledger === null && !this.#isUnwritable) {
      this.#brokeOff = 'the reader of its output has closed it'
      return false
    }
    await this.#cancel()
    return true
  }

  /** Cancels the fan-out, because its results cannot be recorded. */
  async #ledgerFailed(): Promise<void> {
    const { context, progress } = this.#components
    progress.clear()
    const why = this.#request?.ledger?.failure ?? ''
    await write(context.stderr, `x0x: cannot write the ledger: ${shownLine(why)}; the remaining runs are cancelled\n`)
    await this.#cancel()
  }

  /** The first signal asks all runs to end and waits for them. The second does not wait. */
  #interrupt(signal: NodeJS.Signals): void {
    const again = this.#interrupted !== null
    this.#interrupted = signal
    if (again || this.#request === null) this.#components.closing.abort()
    else {
      this.#components.progress.cancelling()
      void this.#cancel()
    }
  }

  async #cancel(): Promise<void> {
    const { closing } = this.#components
    try {
      await this.#source?.cancel(this.#request!)
    } catch (error) {
      // The fan-out has ended and its last events are on the way. In any other case the closed request cancels it too.
      if (!this.#hosts.isEmpty && isAppError(error, 'unknown_run')) return
      closing.abort()
    }
  }

  async #finish({ argv, fanoutId, ledger }: FleetRequest): Promise<number> {
    const { context, view, held, progress } = this.#components
    const left = this.#hosts.abandon(this.#brokeOff ?? 'the daemon did not report the result')
    for (const end of left) progress.ended(end)
    progress.end()
    const all = this.#hosts.sums(fanoutId)
    // An interrupted answer, or one with wrong sums, is not successful, even if it reported success of the hosts.
    const sums = { ...all, ok: all.ok && this.#brokeOff === null }
    // Recorded before it is shown, because the reader may be slow.
    const whole = ledger === null ? sums : ledger.state.ledger()
    ledger?.add({ type: 'ledger', ...whole })
    await ledger?.close()
    const isLate = this.#components.closing.signal.aborted && this.#interrupted !== null
    if (!this.#readerGone && !isLate) {
      for (const end of left) await view.ended(end)
      this.#readerGone = !(await view.finish(sums))
    }
    if ((!this.#readerGone || this.#isUnwritable) && !context.json) await this.#summary(argv, sums, isLate ? left.length : 0)
    if (this.#interrupted !== null) return exitOfSignal(this.#interrupted)
    const incomplete = held?.isCut === true || (held?.problem ?? null) !== null || (ledger?.failure ?? null) !== null
    return fleetStatus(whole) || (sums.ok && !incomplete ? 0 : 1)
  }

  async #summary(argv: readonly string[], sums: FanoutLedgerJson, unheard: number): Promise<void> {
    const { context, held, progress } = this.#components
    const ends = this.#hosts.ends()
    const own = ends.some(({ denial_reason }) => denial_reason !== null) && unheard === 0 ? await this.#own() : null
    const facts = { argv, timed: this.#timed, interrupted: this.#interrupted !== null, own, elapsedMs: progress.elapsedMs }
    const { path, state, isGone } = this.#request?.ledger ?? {}
    const whole = state?.ledger() ?? sums
    const lines = summaryLines(sums, ends, {
      ...facts,
      ledger: path === undefined || isGone === true ? null : { path, ends: state?.ends() ?? [], bounds: this.#bounds },
    })
    for (const line of context.quiet ? [] : this.#warnings.lines()) await this.#say([line])
    if (!(context.quiet && sums.ok)) await this.#say([...this.#beforehand(sums, unheard), ...lines])
    if (countsLine(whole) !== countsLine(sums) && !context.quiet) await this.#say([`the whole ledger: ${countsLine(whole)}`])
    const problem = held?.problem ?? null
    if (problem !== null) await this.#say([`some output could not be kept, and is missing: ${problem}`])
  }

  /** Lines before the counts. */
  #beforehand({ unknown }: FanoutLedgerJson, unheard: number): string[] {
    if (unheard > 0 && this.#interrupted !== null && unknown > 0)
      return [`not waiting: how ${counted(unknown, 'command')} end is not known; they are being ended, which may take up to 5 s`]
    return this.#brokeOff === null || this.#interrupted !== null ? [] : [`it broke off: ${this.#brokeOff}`]
  }

  async #say(lines: readonly string[]): Promise<void> {
    const { context } = this.#components
    const columns = (context.stderr.isTTY === true && context.stderr.columns) || Infinity
    await printProblem(
      context,
      lines.flatMap((line) => fittedLines(line, columns)),
    )
  }

  /** This agent as other agents see it, or null if the daemon does not answer. */
  async #own(): Promise<RunFacts['own']> {
    return this.#components.context.api.json<RunFacts['own']>({ method: 'GET', path: '/agent' }).catch(() => null)
  }
}
