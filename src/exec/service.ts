import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { ExecutorClient } from '../executor/port/client.ts'
import type { RunPort } from '../executor/port/run-port.ts'
import { decodeExecBody, EXEC_PREFIX, execExit, execFrame, type ExecFrame } from '../protocol/exec.ts'
import { shortId, type RequestId } from '../protocol/ids.ts'
import type { DenialReason } from '../protocol/reasons.ts'
import type { RequesterCounters } from './counters.ts'
import type { RunChannel } from './wire.ts'

type BodyHandler = (channel: RunChannel, requestId: RequestId, body: Uint8Array) => void

export interface ExecServiceComponents {
  readonly executor: Pick<ExecutorClient, 'openRun'>
  readonly counters: RequesterCounters
  readonly log: Logger
  /** The executor has refused a request of somebody whom the trust rules do not accept. */
  onStrangerDenied(peer: RunChannel['link']): void
}

/** Answers peers: carries their signed bytes to the executor and its frames back. It decides nothing. */
export class ExecService {
  readonly #components: ExecServiceComponents

  constructor(components: ExecServiceComponents) {
    this.#components = components
  }

  /** The first exec body of an incoming channel: from here on the channel is the run's. */
  readonly onBody: BodyHandler = (channel, requestId, body) => {
    const run = new PeerRun({ ...this.#components, channel }, { requestId })
    channel.onBody = (id, next) => run.receive(id, next)
    channel.onClosed = () => run.lost()
    run.receive(requestId, body)
  }

  /** Takes exec's bodies before any generic fan-out. */
  register(dispatcher: { route(prefix: Uint8Array, handler: BodyHandler): void }): void {
    dispatcher.route(EXEC_PREFIX, this.onBody)
  }
}

/** One run of a peer, on the channel that it came by. */
class PeerRun {
  readonly #components: ExecServiceComponents
  readonly #channel: RunChannel
  readonly #requestId: RequestId
  #run: RunPort | null = null
  /** The executor's answers that wait for a slow peer; its window bounds them. */
  readonly #queue: Uint8Array[] = []
  #sending = false
  #ended = false
  #finished = false
  /** The last number of stdin that the executor acknowledged. */
  #stdinAcked = 0
  #answered = false

  constructor(components: ExecServiceComponents & { channel: RunChannel }, init: { requestId: RequestId }) {
    this.#components = components
    this.#channel = components.channel
    this.#requestId = init.requestId
  }

  receive(requestId: RequestId, body: Uint8Array): void {
    if (this.#ended) return
    try {
      if (requestId !== this.#requestId) throw new AppError('malformed', 'a message of another request')
      this.#take(decodeExecBody(body), body.subarray(EXEC_PREFIX.length))
    } catch (error) {
      this.#components.counters.add('peer_malformed')
      this.#components.log.warn({ agent: shortId(this.#channel.link.agentId) }, `a run's stream ended: ${errorText(error)}`)
      this.lost()
      this.#channel.abort()
    }
  }

  /** The stream is gone: the executor ends the run. */
  lost(): void {
    if (this.#ended) return
    this.#ended = true
    this.#queue.length = 0
    this.#run?.lost()
  }

  #take(frame: ExecFrame, bytes: Uint8Array): void {
    if (this.#run === null) {
      if (frame.type !== 'request') throw new AppError('malformed', `the first frame is a ${frame.type}, not a request`)
      this.#open(bytes)
      return
    }
    this.#run.send(bytes)
    // An answer, so that the requester can tell a quiet run from a dead connection. Where others wait, they
    // are answer enough: a peer that renews and does not read must not fill our memory.
    if (frame.type === 'lease_renew' && this.#queue.length === 0) {
      this.#send(execFrame.encode({ type: 'ack', request_id: this.#requestId, stdin: this.#stdinAcked, stdout: 0, stderr: 0 }))
    }
  }

  #open(bytes: Uint8Array): void {
    this.#components.counters.add('peer_runs')
    const { link, streamNonce } = this.#channel
    const run = this.#components.executor.openRun(link.number, streamNonce, bytes)
    run.onFrame = (frame) => this.#send(frame)
    run.onClosed = () => this.#over()
    this.#run = run
  }

  #send(frame: Uint8Array): void {
    if (this.#ended) return
    this.#note(frame)
    this.#queue.push(frame)
    this.#flush()
  }

  #note(frame: Uint8Array): void {
    const first = !this.#answered
    this.#answered = true
    if (frame.length > SMALL_FRAME && !first) return
    const decoded = execFrame.decode(frame)
    if (decoded.type === 'ack') this.#stdinAcked = decoded.stdin
    // A run that never started has its Exit for a first answer.
    if (first && decoded.type === 'exit' && isStrangers(execExit.decode(decoded.body).denial_reason))
      this.#components.onStrangerDenied(this.#channel.link)
  }

  /** The executor has nothing more to say; what waits still goes out. */
  #over(): void {
    this.#finished = true
    this.#flush()
  }

  #flush(): void {
    if (this.#sending) return
    this.#sending = true
    // What cannot be sent leaves a stream that is of no use to the peer.
    this.#sendAll().catch(() => this.#channel.abort())
  }

  async #sendAll(): Promise<void> {
    for (let frame = this.#queue.shift(); frame !== undefined; frame = this.#queue.shift()) {
      if (!this.#channel.send(this.#requestId, EXEC_PREFIX, frame)) await this.#channel.drained()
    }
    this.#sending = false
    if (!this.#finished || this.#ended) return
    this.#ended = true
    await this.#channel.close()
  }
}

const isStrangers = (reason: DenialReason | null): boolean => reason === 'unverified_sender' || reason === 'trust_rejected'

/** Every Ack is shorter, and no frame with much output is. */
const SMALL_FRAME = 64
