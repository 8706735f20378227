import type { Clock } from '../base/clock.ts'
import { errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor/port/client.ts'
import { newRequestId } from '../identity/request-id.ts'
import { execFrame, type ExecFrame } from '../protocol/exec.ts'
import { shortId, type AgentId } from '../protocol/ids.ts'
import { LEASE_RENEW_MS } from '../protocol/limits.ts'
import { APPROVER_RETRY_MS, MAX_APPROVER_ASKS, MAX_APPROVER_RETRY_MS } from '../protocol/waiting-limits.ts'
import type { RequesterCounters } from './counters.ts'
import type { RunTransport } from './transport.ts'
import { Transports, type TransportsComponents } from './transports.ts'

/** Renewals in a row on whose answer nothing came: the stream is dead, and another is opened. */
const SILENT_RENEWALS = 4

export interface ApproverClientComponents extends TransportsComponents {
  readonly executor: Pick<
    ExecutorClient,
    'identity' | 'mintNonces' | 'openRun' | 'drained' | 'signApprovalRequest' | 'onApprovalAsk' | 'approvalAnswer'
  >
  readonly clock: Clock
  readonly counters: RequesterCounters
  readonly log: Logger
}

/** Reaches the agents whose approval our executor wants, and carries its question and their signed word. It can make neither. */
export class ApproverClient implements Startable {
  readonly #parts: ApproverClientComponents
  readonly #transports: Transports
  readonly #asks = new Map<number, AbortController>()
  #unsubscribe: () => void = () => undefined

  constructor(components: ApproverClientComponents) {
    this.#parts = components
    this.#transports = new Transports(components)
  }

  start(): void {
    this.#unsubscribe = this.#parts.executor.onApprovalAsk((ask, agentId) => {
      if (agentId === null) this.#withdraw(ask)
      else this.#begin(ask, agentId)
    })
  }

  stop(): void {
    this.#unsubscribe()
    for (const ask of this.#asks.keys()) this.#withdraw(ask)
  }

  #withdraw(ask: number): void {
    this.#asks.get(ask)?.abort()
    this.#asks.delete(ask)
  }

  #begin(ask: number, agentId: AgentId): void {
    if (this.#asks.has(ask) || this.#asks.size >= MAX_APPROVER_ASKS) return
    const withdrawn = new AbortController()
    this.#asks.set(ask, withdrawn)
    void this.#run(ask, agentId, withdrawn.signal)
  }

  /** Until it has answered or is not asked any more: an approver may come online, and its human open a window, while a run waits. */
  async #run(ask: number, agentId: AgentId, signal: AbortSignal): Promise<void> {
    for (let pause = APPROVER_RETRY_MS; !signal.aborted; pause = Math.min(2 * pause, MAX_APPROVER_RETRY_MS)) {
      try {
        if (await this.#askOnce(ask, agentId, signal)) return
      } catch (error) {
        if (signal.aborted || isAppError(error, 'not_found')) return
        this.#parts.log.debug({ agent: shortId(agentId), error: errorText(error) }, 'an approver could not be asked')
      }
      await this.#pause(pause, signal)
    }
  }

  async #askOnce(ask: number, agentId: AgentId, signal: AbortSignal): Promise<boolean> {
    const { counters, executor } = this.#parts
    const requestId = newRequestId()
    const transport = await this.#transports.open(agentId, requestId, signal)
    try {
      signal.throwIfAborted()
      const { peer, streamNonce } = transport
      const question = await executor.signApprovalRequest({ link: peer.number, ask, request_id: requestId, stream_nonce: streamNonce })
      counters.add('approvers_asked')
      const answer = await this.#answerOf(transport, { type: 'approval_request', ...question }, requestId, signal)
      if (answer?.type !== 'approval_statement') return false
      executor.approvalAnswer(ask, execFrame.encode(answer))
      return true
    } finally {
      // In peace: its executor then takes the question from its human at once.
      transport.close()
    }
  }

  /** Null where the stream ended without one. */
  async #answerOf(transport: RunTransport, question: ExecFrame, requestId: string, signal: AbortSignal): Promise<ExecFrame | null> {
    const { promise, resolve } = Promise.withResolvers<ExecFrame | null>()
    const over = new AbortController()
    signal.addEventListener('abort', () => resolve(null), { signal: over.signal })
    transport.onFrame = (frame) => {
      if (frame.type !== 'ack') resolve(frame)
    }
    transport.onClosed = () => resolve(null)
    if (transport.closed || signal.aborted) resolve(null)
    else transport.send(question)
    this.#renew(transport, requestId, over.signal, () => resolve(null))
    try {
      return await promise
    } finally {
      over.abort()
    }
  }

  /** The other side takes the question back from its human when we fall silent, and we look for another way when it does. */
  #renew(transport: RunTransport, requestId: string, over: AbortSignal, onSilent: () => void): void {
    let heard = transport.heard
    let unanswered = 0
    const renew = (): void => {
      if (over.aborted) return
      unanswered = transport.heard === heard ? unanswered + 1 : 0
      heard = transport.heard
      if (unanswered > SILENT_RENEWALS) return onSilent()
      transport.send({ type: 'lease_renew', request_id: requestId })
      this.#parts.clock.setTimeout(renew, LEASE_RENEW_MS, { unref: true })
    }
    this.#parts.clock.setTimeout(renew, LEASE_RENEW_MS, { unref: true })
  }

  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const over = new AbortController()
    const timer = this.#parts.clock.setTimeout(resolve, ms, { unref: true })
    signal.addEventListener('abort', () => resolve(), { signal: over.signal })
    await promise
    over.abort()
    timer.cancel()
  }
}
