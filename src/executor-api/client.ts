import type { Duplex } from 'node:stream'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { PendingReplies } from '../base/pending-replies.ts'
import { stageOfOtherProcess } from '../base/run-stages.ts'
import type { Startable } from '../base/startable.ts'
import type { TrustEvaluation } from '../protocol/api-answers.ts'
import type { DetachedRunUpdate, DetachedRequestPage, DetachedRequest } from '../protocol/api/detached-run.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { WorkList } from '../protocol/handover.ts'
import { MAX_TEXT } from '../protocol/limits/wire.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import { ANSWERS, type ReplyOf, type Arguments, type CallType, Listeners, boundedError, portError } from './calls.ts'
import { ExecutorChannel } from './channel.ts'
import {
  type ASKED_ANSWERS,
  type ApiTokens,
  type EnrolAsk,
  type HttpRefused,
  NO_PROOF,
  type NetworkSettings,
  type Operation,
  PORT_VERSION,
  type Query,
  type RequestProof,
  type ToExecutor,
  type ToNetwork,
  toExecutor,
  toNetwork,
} from './messages.ts'
import { ExecutorPeerRun, type PeerRunHandle } from './peer-run.ts'
import { NO_SNAPSHOT, type Snapshot } from './snapshot.ts'

type PendingCall = keyof typeof ASKED_ANSWERS

/** Client of the executor's store of requested detached runs. */
export class DetachedRequestCalls {
  readonly #call: <C extends PendingCall>(type: C, call: Arguments<C>) => Promise<ReplyOf<C>>

  constructor(call: <C extends PendingCall>(type: C, call: Arguments<C>) => Promise<ReplyOf<C>>) {
    this.#call = call
  }

  /** Resolves when the row is on disk, to whether it is new. Throws `conflict`, `rate_limited`, `bad_runs`. */
  async add(run: Arguments<'asked_add'>): Promise<boolean> {
    return this.#result('asked_add', run)
  }

  /** Lists all rows, oldest first. Throws `bad_runs`. */
  async list(): Promise<DetachedRequest[]> {
    const all: DetachedRequest[] = []
    for (;;) {
      const { runs, more } = await this.#result<DetachedRequestPage, 'asked_page'>('asked_page', { after: all.at(-1)?.request_id ?? null })
      all.push(...runs)
      if (!more) return all
    }
  }

  /** Throws `unknown_run`, `bad_runs`. */
  async get(request_id: RequestId): Promise<DetachedRequest> {
    return this.#result('asked_get', { request_id })
  }

  /** Records what the target reported, and returns the row. Throws like `get`. */
  async record(request_id: RequestId, { state, code, signal, denial_reason }: DetachedRunUpdate): Promise<DetachedRequest> {
    return this.#result('asked_note', { request_id, state, code, signal, denial_reason })
  }

  /** Throws like `get`. */
  async forget(request_id: RequestId): Promise<DetachedRequest> {
    return this.#result('asked_forget', { request_id })
  }

  async #result<T, C extends PendingCall>(type: C, call: Arguments<C>): Promise<T> {
    const { json } = await this.#call(type, call)
    return JSON.parse(json) as T
  }
}

export interface ExecutorIdentity {
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
}

/** The network process's end of the executor API, with calls as promises, runs as frames, and pushed events. */
export class ExecutorClient implements Startable {
  readonly linkOpen = this.#callOf('link_open')
  readonly linkConfirm = this.#callOf('link_confirm')
  readonly linkAccept = this.#callOf('link_accept')
  readonly linkFinish = this.#callOf('link_finish')
  readonly signCard = this.#callOf('sign_card')
  readonly signApprovalRequest = this.#callOf('sign_approval_request')
  readonly settings = async (): Promise<NetworkSettings> => this.#call('settings', {})
  readonly signDetachRequest = this.#callOf('sign_detach_request')
  readonly signDetachedAsk = this.#callOf('sign_detached_ask')
  readonly signTerminalRequest = this.#callOf('sign_terminal_request')
  readonly signTerminalInput = this.#callOf('sign_terminal_input')
  readonly signRulesRequest = this.#callOf('sign_rules_request')
  readonly enrolSign = this.#callOf('enrol_sign')
  readonly enrolRequest = this.#callOf('enrol_request')
  readonly asked = new DetachedRequestCalls(async (type, call) => this.#call(type, call))
  readonly #channel: ExecutorChannel<ToNetwork, ToExecutor>
  readonly #log: Logger
  readonly #replies = new PendingReplies<Extract<ToNetwork, { id: number }>>()
  readonly #runs = new Map<number, ExecutorPeerRun>()
  readonly #onSnapshot = new Listeners<[snapshot: Snapshot]>()
  readonly onSnapshot = this.#onSnapshot.add
  readonly #onDecision = new Listeners<[link: number, decision: TrustDecision]>()
  readonly onLinkDecision = this.#onDecision.add
  readonly #onRevocations = new Listeners<[link: number, items: readonly Uint8Array[]]>()
  readonly onLinkRevocations = this.#onRevocations.add
  readonly #onTokens = new Listeners<[tokens: ApiTokens]>()
  readonly onTokens = this.#onTokens.add
  readonly #onDrain = new Listeners<[isDraining: boolean]>()
  readonly onDrain = this.#onDrain.add
  readonly #onApprovalAsk = new Listeners<[ask: number, agentId: AgentId | null]>()
  /** `agentId` is the agent to ask, or null when the request is withdrawn. */
  readonly onApprovalAsk = this.#onApprovalAsk.add
  readonly #onEnrolAsk = new Listeners<[ask: EnrolAsk]>()
  readonly onEnrolAsk = this.#onEnrolAsk.add
  readonly #closed = Promise.withResolvers<Error | null>()
  readonly #stopAsked = Promise.withResolvers<void>()
  /** Resolves when the channel is closed, with null if it ended cleanly. The network process cannot work without it. */
  readonly closed = this.#closed.promise
  /** Resolves when the executor asks this process to answer its clients and end. */
  readonly stopAsked = this.#stopAsked.promise
  /** Received parts of the next snapshot. */
  readonly #snapshotParts: Uint8Array[] = []
  #lastRun = 0
  #identity: ExecutorIdentity | null = null
  #tokens: ApiTokens | null = null
  #snapshot = NO_SNAPSHOT
  #isDraining = false

  constructor(deps: { readonly duplex: Duplex; readonly log: Logger }) {
    this.#log = deps.log
    this.#channel = new ExecutorChannel(
      { duplex: deps.duplex, incoming: toNetwork, outgoing: toExecutor },
      {
        onMessage: (message) => this.#guard(() => this.#receive(message)),
        onMalformed: (_payload, error) => this.#channel.close(new AppError('malformed', errorText(error))),
        onClosed: (error) => this.#end(error),
        holdWhenBehind: false,
      },
    )
  }

  /** Says hello. Afterwards `identity` is set, and the first snapshot follows. */
  async start(): Promise<void> {
    const welcome = await this.#call('hello', { version: PORT_VERSION })
    if (welcome.version !== PORT_VERSION)
      throw new AppError(
        'internal',
        `the executor uses version ${welcome.version} of the executor socket, and the network process version ${PORT_VERSION}`,
      )
    this.#identity = { agentId: welcome.agent_id, machineId: welcome.machine_id, agentPublicKey: welcome.agent_public_key }
  }

  stop(): void {
    this.#channel.close()
  }

  get identity(): ExecutorIdentity {
    if (this.#identity === null) throw new AppError('internal', 'the executor was not greeted yet')
    return this.#identity
  }

  /** The latest snapshot. Use it for display, dialling and budgets, never for a decision. */
  get snapshot(): Snapshot {
    return this.#snapshot
  }

  /** Tokens that replaced those of the settings, or null if they were not renewed. */
  get tokens(): ApiTokens | null {
    return this.#tokens
  }

  /** Whether the daemon accepts no new run, because it restarts when the others have ended. */
  get isDraining(): boolean {
    return this.#isDraining
  }

  /** Reports what local clients wait for, during a drain. */
  clientWork(work: WorkList): void {
    this.#channel.send({ type: 'client_work', json: JSON.stringify(work) })
  }

  /** Reports a signed Exit with `draining`, so that a Request that an operator proved can be signed once more. */
  requestDenied(request_id: RequestId, exit: { readonly body: Uint8Array; readonly signature: Uint8Array }): void {
    this.#channel.send({ type: 'request_denied', request_id, ...exit })
  }

  /** Reports that this process listens. */
  ready(apiPort: number): void {
    this.#channel.send({ type: 'network_ready', api_port: apiPort })
  }

  /** Reports that this process could not start. Resolves when the executor has the message or is gone. */
  async failed(error: AppError): Promise<void> {
    this.#channel.send({ type: 'network_failed', code: error.code, message: error.message.slice(0, MAX_TEXT / 4) })
    this.#channel.finish()
    await this.closed
  }

  /** Reports a refusal for the audit log. Refusals are dropped while the executor is behind. It would not log all of them anyway. */
  httpRefused(refusal: HttpRefused): void {
    if (!this.#channel.full) this.#channel.send({ type: 'http_refused', ...refusal })
  }

  /** `frame` is the approver's encoded answer. */
  approvalAnswer(ask: number, frame: Uint8Array): void {
    this.#channel.send({ type: 'approval_answer', ask, frame })
  }

  /** `frame` is the operator's encoded answer. */
  enrolAnswer(ask: number, frame: Uint8Array): void {
    this.#channel.send({ type: 'enrol_answer', ask, frame })
  }

  enrolFailed(ask: number, error: unknown): void {
    const { code, message } = boundedError(error)
    this.#channel.send({ type: 'enrol_failed', ask, code, message })
  }

  linkDropped(handle: number): void {
    this.#channel.send({ type: 'link_dropped', handle })
  }

  linkClosed(link: number): void {
    this.#channel.send({ type: 'link_closed', link })
  }

  async mintNonces(link: number, count: number): Promise<Uint8Array[]> {
    return (await this.#call('mint_nonces', { link, count })).nonces
  }

  dropNonces(link: number, nonces: Uint8Array[]): void {
    this.#channel.send({ type: 'drop_nonces', link, nonces })
  }

  async signRequest(
    call: Omit<Arguments<'sign_request'>, keyof RequestProof | 'fanout'>,
    proof: RequestProof = NO_PROOF,
    fanout: RequestId | null = null,
  ): Promise<ReplyOf<'sign_request'>> {
    return this.#call('sign_request', { ...call, ...proof, fanout })
  }

  /** Throws `operator_proof_required`, `bad_request`, `rate_limited`. */
  async proveFanout(fanout: RequestId, proof: RequestProof): Promise<void> {
    await this.#call('prove_fanout', { fanout, ...proof })
  }

  async fanoutOver(fanout: RequestId): Promise<void> {
    await this.#call('fanout_over', { fanout })
  }

  /** `body` is the JSON exactly as proven. `proof` is the header's text, or "" without a proof. */
  async operate(operation: Operation, body: Uint8Array, proof: string): Promise<unknown> {
    return parseResult(await this.#call('operate', { operation, body, proof }))
  }

  async query(what: Query): Promise<unknown> {
    return parseResult(await this.#call('query', { what }))
  }

  async evaluateTrust(agent: AgentId, machine: MachineId): Promise<TrustEvaluation> {
    return parseResult(await this.#call('evaluate_trust', { agent, machine })) as TrustEvaluation
  }

  /** Returns how many of the peer's revocations were new and relevant. */
  async revocations(link: number, items: Uint8Array[]): Promise<number> {
    const result = parseResult(await this.#call('revocations', { link, items })) as { accepted: number }
    return result.accepted
  }

  /** `frame` is the first frame of the stream, encoded. `streamNonce` is this side's nonce of its stream. */
  openRun(link: number, streamNonce: Uint8Array, frame: Uint8Array): PeerRunHandle {
    return this.#newRun('run_open', link, streamNonce, frame)
  }

  /** `frame` is the peer's encoded `resume`. It continues a run on another stream. */
  resumeRun(link: number, streamNonce: Uint8Array, frame: Uint8Array): PeerRunHandle {
    return this.#newRun('run_resume', link, streamNonce, frame)
  }

  #newRun(type: 'run_open' | 'run_resume', link: number, streamNonce: Uint8Array, frame: Uint8Array): PeerRunHandle {
    const run = ++this.#lastRun
    const port = new ExecutorPeerRun({ channel: this.#channel }, { run })
    if (this.#channel.closed) {
      queueMicrotask(() => port.ended())
      return port
    }
    this.#runs.set(run, port)
    this.#channel.send({ type, run, link, stream_nonce: streamNonce, frame })
    return port
  }

  async drained(): Promise<void> {
    return this.#channel.drained()
  }

  #callOf<C extends CallType>(type: C): (call: Arguments<C>) => Promise<ReplyOf<C>> {
    return async (call) => this.#call(type, call)
  }

  async #call<C extends CallType>(type: C, call: Arguments<C>): Promise<ReplyOf<C>> {
    if (this.#channel.closed) throw new AppError('shutting_down', 'the executor is gone')
    const { id, reply } = this.#replies.start(null)
    this.#channel.send({ type, id, ...call } as unknown as ToExecutor)
    const { type: given, id: _id, ...answer } = await reply
    if (given !== ANSWERS[type]) throw new AppError('internal', `the executor answered ${given} instead of ${ANSWERS[type]}`)
    return answer as unknown as ReplyOf<C>
  }

  /** An error of one listener must not end the channel or stop the others. */
  #guard(work: () => void): void {
    try {
      work()
    } catch (error) {
      this.#log.error({ err: errorText(error) }, 'a listener of the port failed')
    }
  }

  #receive(message: ToNetwork): void {
    switch (message.type) {
      case 'run_frame':
        this.#runs.get(message.run)?.onFrame(message.frame)
        return
      case 'run_closed':
        this.#closeRun(message.run)
        return
      case 'snapshot':
        return this.#takeSnapshot(message)
      case 'link_decision':
        return this.#onDecision.emit(message.link, message.decision)
      case 'link_revocations':
        return this.#onRevocations.emit(message.link, message.items)
      case 'approval_ask':
        return this.#onApprovalAsk.emit(message.ask, message.agent_id)
      case 'approval_withdrawn':
        return this.#onApprovalAsk.emit(message.ask, null)
      case 'run_stage':
        return stageOfOtherProcess(message)
      case 'caller_tokens':
        this.#tokens = message
        return this.#onTokens.emit(message)
      case 'drain':
        this.#isDraining = message.on
        return this.#onDrain.emit(message.on)
      case 'enrol_ask':
        return this.#onEnrolAsk.emit(message)
      case 'stop':
        return this.#stopAsked.resolve()
      case 'ping':
        return void this.#channel.send({ type: 'pong' })
      default: {
        const { id, type } = message
        const waited = type === 'failed' ? this.#replies.reject(id, portError(message)) : this.#replies.resolve(id, message)
        if (!waited) this.#log.warn({ id, type }, 'an answer to no call')
      }
    }
  }

  #takeSnapshot({ part, last }: Extract<ToNetwork, { type: 'snapshot' }>): void {
    this.#snapshotParts.push(part)
    if (!last) return
    this.#snapshot = JSON.parse(Buffer.concat(this.#snapshotParts.splice(0)).toString()) as Snapshot
    this.#onSnapshot.emit(this.#snapshot)
  }

  #closeRun(run: number): void {
    const port = this.#runs.get(run)
    this.#runs.delete(run)
    port?.ended()
  }

  #end(error: Error | null): void {
    this.#replies.close(new AppError('shutting_down', 'the executor is gone', { cause: error }))
    for (const run of this.#runs.keys()) this.#guard(() => this.#closeRun(run))
    this.#closed.resolve(error)
  }
}

const parseResult = (answer: { json: string }): unknown => JSON.parse(answer.json)
