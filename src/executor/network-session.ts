import type { Duplex } from 'node:stream'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import { onStage } from '../base/run-stages.ts'
import { failedAnswer, portError } from '../executor-api/calls.ts'
import { ExecutorChannel, headOf } from '../executor-api/channel.ts'
import {
  type ApiTokens,
  type NetworkSettings,
  RUN_TAGS,
  type ToExecutor,
  type ToNetwork,
  UNANSWERED_TAGS,
  toExecutor,
  toNetwork,
} from '../executor-api/messages.ts'
import { NO_WORK, type WorkList, readWorkList } from '../protocol/handover.ts'
import { MAX_PORT_CALLS, MAX_SNAPSHOT_PART, PORT_FINISH_MS } from '../protocol/limits/wire.ts'
import type { HostEnrolment } from './enrolment/host-enrolment.ts'
import type { ExecutorLinks, PeerLink } from './links/executor-links.ts'
import type { Nonces } from './links/nonces.ts'
import type { PeerRevocations, PeerSuccessions } from './links/statements.ts'
import type { Call, NetworkCalls } from './network-calls.ts'
import type { ApproverAsks } from './runs/agent-approvals.ts'
import type { RunArrival } from './runs/decisions.ts'
import { PeerStreamWriter } from './runs/frames.ts'
import type { Carried } from './runs/peer-approvals.ts'
import type { Requests } from './runs/requests.ts'
import type { Runs } from './runs/runs.ts'
import type { ExecutorServices } from './services.ts'
import type { Views } from './views.ts'

/** The supervisor that started a network process, with its settings and callbacks about its start. */
export interface NetworkHost {
  readonly settings: NetworkSettings
  /** Called once when the network process listens. */
  onReady(apiPort: number): void
  /** Called when the network process could not start. */
  onFailed(error: AppError): void
}

export interface NetworkSessionDeps extends Pick<ExecutorServices, 'authority' | 'clock' | 'counters' | 'log'> {
  readonly approvers: ApproverAsks
  readonly calls: NetworkCalls
  readonly duplex: Duplex
  /** The pending enrolment of this machine, or null. */
  readonly enrolment: HostEnrolment | null
  readonly links: ExecutorLinks
  /** Null if this process did not start the network process. */
  readonly host: NetworkHost | null
  readonly nonces: Nonces
  readonly requests: Requests
  readonly revocations: PeerRevocations
  readonly runs: Runs
  readonly successions: PeerSuccessions
  readonly views: Views
}

/** One network process on the executor API, with its calls, links and relayed runs. */
export class NetworkSession {
  readonly #deps: NetworkSessionDeps
  readonly #channel: ExecutorChannel<ToExecutor, ToNetwork>
  /** Relayed runs by number, or null while a request is being answered without a run. */
  readonly #runs = new Map<number, { readonly run: Carried; readonly outlet: PeerStreamWriter } | null>()
  readonly #closed = Promise.withResolvers<Error | null>()
  /** Resolves when the channel is closed, with null if it ended cleanly. */
  readonly closed = this.#closed.promise
  #pinged: PromiseWithResolvers<void> | null = null
  #greeted = false
  #calls = 0
  /** Null until the network process reports during a drain. */
  #clientWork: WorkList | null = null

  constructor(deps: NetworkSessionDeps) {
    this.#deps = deps
    this.#channel = new ExecutorChannel(
      { duplex: deps.duplex, incoming: toExecutor, outgoing: toNetwork },
      {
        onMessage: (message) => this.#guard(() => this.#receive(message)),
        onMalformed: (payload, error) => this.#guard(() => this.#salvage(payload, error)),
        onClosed: (error) => this.#end(error),
        holdWhenBehind: true,
      },
    )
    if ((deps.host?.settings.otlp ?? null) !== null) this.#pushStages()
  }

  /** Ends the channel after everything was sent, or after PORT_FINISH_MS. */
  async finish(): Promise<void> {
    const timer = this.#deps.clock.setTimeout(() => this.#channel.close(), PORT_FINISH_MS)
    this.#channel.finish()
    await this.closed
    timer.cancel()
  }

  /** Asks the network process to answer its clients and to end. */
  askToStop(): void {
    this.#channel.send({ type: 'stop' })
  }

  /** Resolves when the network process answers. */
  async ping(): Promise<void> {
    this.#pinged ??= Promise.withResolvers()
    this.#channel.send({ type: 'ping' })
    return this.#pinged.promise
  }

  /** Contacts or revocations have changed, so evaluates the links again and informs the network process. */
  trustChanged(): void {
    const changed = this.#deps.links.rejudge()
    for (const { number: link, decision } of changed) this.#channel.send({ type: 'link_decision', link, decision })
    this.#pushSnapshot()
  }

  /** Lets the network process refuse new requests of local clients, or accept them again. */
  drain(on: boolean): void {
    this.#clientWork = null
    if (this.#greeted && !this.#channel.closed) this.#channel.send({ type: 'drain', on })
  }

  /** Work of local clients during a drain, or null if it is not known yet. */
  get clientWork(): WorkList | null {
    return this.#greeted ? this.#clientWork : NO_WORK
  }

  /** Sent before the answer to the call that changed the tokens. */
  sendTokens(tokens: ApiTokens): void {
    if (this.#deps.host !== null && this.#greeted) this.#channel.send({ type: 'caller_tokens', ...tokens })
  }

  /** Sends each peer the revocations that it has not received. */
  shareRevocations(): void {
    for (const link of this.#deps.links.all()) this.#pushRevocations(link)
  }

  #receive(message: ToExecutor): void {
    // A network process of another release gets no welcome and reports that.
    if (!this.#greeted && message.type !== 'hello' && message.type !== 'network_failed')
      return this.#channel.close(new AppError('malformed', `${message.type} before hello`))
    const { links } = this.#deps
    switch (message.type) {
      case 'link_dropped':
        return links.dropped(message.handle)
      case 'link_closed':
        return links.closed(message.link)
      case 'drop_nonces':
        return this.#dropNonces(links.get(message.link), message.nonces)
      case 'run_open':
        return this.#admit(message, (arrival) => this.#deps.runs.open(arrival))
      case 'run_resume':
        return this.#admit(message, (arrival) => this.#deps.runs.resume(arrival))
      case 'run_frame': {
        // The run may have just ended, so an unknown number is valid.
        const open = this.#runs.get(message.run)
        return open?.run.receive(message.frame)
      }
      case 'run_lost':
      case 'run_over': {
        const open = this.#runs.get(message.run)
        return message.type === 'run_lost' ? open?.run.lost(open.outlet) : open?.run.over(open.outlet)
      }
      case 'network_ready':
        this.#attachEnrolment()
        return this.#deps.host?.onReady(message.api_port)
      case 'network_failed':
        return this.#deps.host?.onFailed(portError({ ...message, message: printable(message.message) }))
      case 'http_refused':
        return void this.#deps.authority.httpRefused(message)
      case 'approval_answer':
        return this.#deps.approvers.answered(message.ask, message.frame)
      case 'request_denied':
        return this.#deps.requests.denied(message)
      case 'client_work':
        this.#clientWork = readWorkList(message.json)
        return
      case 'enrol_answer':
        return this.#deps.enrolment?.answered(message.ask, message.frame)
      case 'enrol_failed':
        return this.#deps.enrolment?.failed({ ...message, message: printable(message.message) })
      case 'pong':
        this.#pinged?.resolve()
        this.#pinged = null
        return
      default:
        void this.#answer(message)
    }
  }

  #dropNonces({ pair, decision }: PeerLink, dropped: readonly Uint8Array[]): void {
    const { nonces } = this.#deps
    for (const nonce of dropped) {
      if (decision === 'accept') nonces.void(pair, nonce)
      else nonces.consume(pair, nonce)
    }
  }

  #admit(message: Extract<ToExecutor, { type: 'run_open' | 'run_resume' }>, take: (arrival: RunArrival) => Carried | null): void {
    const { links, nonces } = this.#deps
    const { run: number, stream_nonce: streamNonce, frame } = message
    if (this.#runs.has(number)) throw new AppError('malformed', `run ${number} is open already`)
    const outlet = new PeerStreamWriter({ channel: this.#channel }, { run: number, onClosed: () => this.#runs.delete(number) })
    this.#runs.set(number, null)
    try {
      const run = take({ link: links.get(message.link), nonces, streamNonce, frame, outlet })
      if (run !== null) this.#runs.set(number, { run, outlet })
    } catch (error) {
      outlet.close()
      throw error
    }
  }

  async #answer(call: Call): Promise<void> {
    this.#calls += 1
    try {
      if (this.#calls > MAX_PORT_CALLS) throw new AppError('rate_limited', 'too many calls at once')
      const answer = await this.#deps.calls.answer(call)
      if (answer.type === 'link_ready') return this.#sendReady(answer)
      this.#channel.send(answer)
      if (answer.type === 'welcome') {
        this.#greeted = true
        if (this.#deps.runs.isDraining) this.drain(true)
        this.#attachApprovers()
        this.#pushSnapshot()
      }
    } catch (error) {
      this.#countRefused(call, error)
      this.#fail(call.id, error)
    } finally {
      this.#calls -= 1
    }
  }

  /** `link_ready` is the first message about a link, so it carries the current decision. */
  #sendReady(answer: Extract<ToNetwork, { type: 'link_ready' }>): void {
    const link = this.#deps.links.get(answer.link)
    this.#channel.send({ ...answer, decision: link.decision })
    link.sentRevocations = new Set()
    this.#pushRevocations(link)
  }

  /** Counts attempts of a captured network process in counters that it cannot change. */
  #countRefused(call: Call, error: unknown): void {
    const { counters } = this.#deps
    if (isAppError(error, 'malformed')) counters.count('malformed_frames')
    else if (isAppError(error, 'operator_proof_required')) counters.count('proofs_refused')
    else if (isAppError(error, 'peer_rejected') || (isAppError(error) && isMissing(error, call))) counters.count('links_refused')
  }

  #fail(id: number, error: unknown): void {
    const { log } = this.#deps
    if (!isAppError(error)) log.error({ error: errorText(error) }, 'a call of the network process failed')
    this.#channel.send(failedAnswer(id, error))
  }

  /** Sends run stages for traces. Stages are dropped while the network process is behind. */
  #pushStages(): void {
    const stop = onStage((reached) => this.#channel.full || this.#channel.send({ type: 'run_stage', ...reached }))
    void this.closed.then(stop)
  }

  #attachApprovers(): void {
    const detach = this.#deps.approvers.attach({
      approvalAsk: (ask, agent_id) => void this.#channel.send({ type: 'approval_ask', ask, agent_id }),
      approvalWithdrawn: (ask) => void this.#channel.send({ type: 'approval_withdrawn', ask }),
    })
    void this.closed.then(detach)
  }

  #attachEnrolment(): void {
    const detach = this.#deps.enrolment?.attach({ enrolAsk: (ask) => void this.#channel.send({ type: 'enrol_ask', ...ask }) })
    if (detach !== undefined) void this.closed.then(detach)
  }

  #pushSnapshot(): void {
    if (!this.#greeted) return
    this.#guard(() => {
      const json = Buffer.from(JSON.stringify(this.#deps.views.snapshot()))
      for (let at = 0; at < json.length; at += MAX_SNAPSHOT_PART) {
        const part = json.subarray(at, at + MAX_SNAPSHOT_PART)
        this.#channel.send({ type: 'snapshot', part, last: at + part.length === json.length })
      }
    })
  }

  #pushRevocations(link: PeerLink): void {
    const { revocations, successions } = this.#deps
    const items = [...successions.takeUnsent(link), ...revocations.takeUnsent(link)]
    if (items.length > 0) this.#channel.send({ type: 'link_revocations', link: link.number, items })
  }

  /** Counts a message that breaks its schema, and fails the call or run that waits for it. */
  #salvage(payload: Uint8Array, error: unknown): void {
    const { counters, log } = this.#deps
    log.warn({ error: errorText(error) }, 'a malformed message of the network process')
    const [tag, number] = headOf(payload) ?? []
    const run = tag !== undefined && RUN_TAGS.includes(tag) ? this.#runs.get(number!) : undefined
    if (run) return run.run.violated(errorText(error))
    counters.count('malformed_frames')
    if (tag === undefined || number === undefined) this.#channel.close(new AppError('malformed', errorText(error)))
    else if (RUN_TAGS.includes(tag)) this.#channel.send({ type: 'run_closed', run: number })
    else if (!UNANSWERED_TAGS.includes(tag)) this.#fail(number, new AppError('bad_request', errorText(error)))
  }

  /** Keeps errors of one message from ending the channel. */
  #guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      if (isAppError(error)) this.#deps.counters.count('malformed_frames')
      this.#deps.log.warn({ error: errorText(error) }, 'a message of the network process failed')
    }
  }

  #end(error: Error | null): void {
    // The runs wait for their lease, because another network process may resume them.
    for (const open of this.#runs.values()) open?.run.lost(open.outlet)
    this.#runs.clear()
    this.#closed.resolve(error)
  }
}

/** The call names an unknown handshake or link. */
const isMissing = ({ code }: AppError, call: Call): boolean =>
  ('handle' in call && code === 'conflict') || ('link' in call && code === 'not_found')

/** Removes control characters, because a captured network process must not control the terminal. */
const printable = (text: string): string => text.replaceAll(/[^\P{C}\n]/gu, '?')
