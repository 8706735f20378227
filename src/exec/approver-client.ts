import { errorText, isAppError } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { Condition } from '../base/wait-queue.ts'
import { newRequestId } from '../identity/request-id.ts'
import { type AgentId, type MachineId, shortId } from '../protocol/ids.ts'
import { APPROVER_RETRY_MS, MAX_APPROVER_ASKS, MAX_APPROVER_MACHINES, MAX_APPROVER_RETRY_MS } from '../protocol/limits/approvals.ts'
import { LEASE_RENEW_MS } from '../protocol/limits/wire.ts'
import { type ExecFrame, execFrame } from '../protocol/wire/exec.ts'
import type { NetworkServices } from './services.ts'
import { ChannelTransport, type RunChannel, type RunTransport } from './transport.ts'

/** Number of unanswered renewals after which a stream counts as dead and another is opened. */
const SILENT_RENEWALS = 4

interface AgentMachine {
  readonly agentId: AgentId
  readonly machineId: MachineId
}

/** The methods of `Links` that this class calls. */
export interface ApproverLinks {
  link(agentId: AgentId, signal: AbortSignal): Promise<unknown>
  /** Connected machines of the agent. */
  machinesOf(agentId: AgentId): readonly MachineId[]
  reopenChannel(to: AgentMachine, silent: boolean, signal: AbortSignal): Promise<RunChannel>
}

type ApproverClientDeps = Pick<NetworkServices, 'clock' | 'counters' | 'executor' | 'log'> & { readonly links: ApproverLinks }

/** Carries approval requests of the executor to other agents, and their signed statements back. It has no key to sign any. */
export class ApproverClient implements Startable {
  readonly #deps: ApproverClientDeps
  readonly #asks = new Map<number, AbortController>()
  readonly #pauses = new Condition()
  #unsubscribe: () => void = () => undefined

  constructor(deps: ApproverClientDeps) {
    this.#deps = deps
  }

  start(): void {
    this.#unsubscribe = this.#deps.executor.onApprovalAsk((ask, agentId) => {
      if (agentId === null) this.#withdraw(ask)
      else this.#start(ask, agentId)
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

  #start(ask: number, agentId: AgentId): void {
    if (this.#asks.has(ask) || this.#asks.size >= MAX_APPROVER_ASKS) return
    const withdrawn = new AbortController()
    this.#asks.set(ask, withdrawn)
    void this.#run(ask, agentId, withdrawn.signal)
  }

  /** Asks the agent on each connected machine, until the request is withdrawn. An approver may come online while a run waits. */
  async #run(ask: number, agentId: AgentId, signal: AbortSignal): Promise<void> {
    const { clock, links } = this.#deps
    const asked = new Set<MachineId>()
    for (let pause = APPROVER_RETRY_MS; !signal.aborted;) {
      const found = links.machinesOf(agentId).length > 0 || (await this.#reach(agentId, signal))
      for (const machineId of links.machinesOf(agentId)) {
        if (asked.has(machineId) || asked.size >= MAX_APPROVER_MACHINES || signal.aborted) continue
        asked.add(machineId)
        void this.#askAt(ask, { agentId, machineId }, signal).then((isOver) => isOver || asked.delete(machineId))
      }
      await this.#pauses.waitAtMost({ clock, timeoutMs: pause, signal })
      pause = found ? APPROVER_RETRY_MS : Math.min(2 * pause, MAX_APPROVER_RETRY_MS)
    }
  }

  async #reach(agentId: AgentId, signal: AbortSignal): Promise<boolean> {
    try {
      await this.#deps.links.link(agentId, signal)
      return true
    } catch (error) {
      this.#failed(agentId, error)
      return false
    }
  }

  /** Returns true after an answer or a withdrawal, false if the machine is disconnected. A person may start an approval client there while a run waits. */
  async #askAt(ask: number, place: AgentMachine, signal: AbortSignal): Promise<boolean> {
    const { clock, links } = this.#deps
    for (let pause = APPROVER_RETRY_MS; !signal.aborted; pause = Math.min(2 * pause, MAX_APPROVER_RETRY_MS)) {
      try {
        if (await this.#askOnce(ask, place, signal)) return true
      } catch (error) {
        if (isAppError(error, 'not_found')) return true
        this.#failed(place.agentId, error)
      }
      await this.#pauses.waitAtMost({ clock, timeoutMs: pause, signal })
      if (!links.machinesOf(place.agentId).includes(place.machineId)) return false
    }
    return true
  }

  #failed(agentId: AgentId, error: unknown): void {
    this.#deps.log.debug({ agent: shortId(agentId), error: errorText(error) }, 'an approver could not be asked')
  }

  async #askOnce(ask: number, place: AgentMachine, signal: AbortSignal): Promise<boolean> {
    const { counters, executor, links } = this.#deps
    const requestId = newRequestId()
    const transport = new ChannelTransport({ channel: await links.reopenChannel(place, false, signal) }, { requestId })
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
      // A normal close makes the approver's daemon withdraw the request from its approval clients at once.
      transport.close()
    }
  }

  /** Returns null if the stream ends without an answer. */
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

  /** Renews the request, because the approver's daemon withdraws it after silence. Calls `onSilent` if the renewals are not answered. */
  #renew(transport: RunTransport, requestId: string, over: AbortSignal, onSilent: () => void): void {
    let heard = transport.heard
    let unanswered = 0
    const { clock } = this.#deps
    const renew = (): void => {
      unanswered = transport.heard === heard ? unanswered + 1 : 0
      heard = transport.heard
      if (unanswered > SILENT_RENEWALS) return onSilent()
      transport.send({ type: 'lease_renew', request_id: requestId })
      timer = clock.setTimeout(renew, LEASE_RENEW_MS, { unref: true })
    }
    let timer = clock.setTimeout(renew, LEASE_RENEW_MS, { unref: true })
    over.addEventListener('abort', () => timer.cancel(), { once: true })
  }
}
