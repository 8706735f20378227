import { AppError } from '../base/errors.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { RunPort } from '../executor-api/run-port.ts'
import { EXEC_PREFIX, type ExecFrame, decodeExecBody, execFrame } from '../protocol/exec.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'

/** Who answers on a transport, as the link proved it. */
export interface RunPeer {
  /** The link's number on the executor's port; 0 is this daemon itself. */
  readonly number: number
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
}

/** What a run needs of a sealed stream to a peer: a `DmChannel`. */
export interface RunChannel {
  readonly link: RunPeer & { readonly heard: number }
  /** The responder's nonce of this stream. */
  readonly streamNonce: Uint8Array
  onBody: (requestId: RequestId, body: Uint8Array) => void
  onClosed: (error: Error | null) => void
  /** The body may be given in parts. False = wait for `drained()`; the body was taken all the same. */
  send(requestId: RequestId, ...body: readonly Uint8Array[]): boolean
  drained(): Promise<void>
  close(): Promise<void>
  abort(): void
}

/** Carries the frames of one run, whether there is a network in between or not. */
export interface RunTransport {
  readonly peer: RunPeer
  readonly streamNonce: Uint8Array
  onFrame: (frame: ExecFrame) => void
  /** Once; not after our own `close` or `abort`. */
  onClosed: (error: Error | null) => void
  /** True once nothing can come any more. */
  readonly closed: boolean
  /** Grows with whatever comes from the peer, of this run or not: any of it shows that the path lives. */
  readonly heard: number
  /** The first frame must be the Request, or Resume. False = wait for `drained()`. */
  send(frame: ExecFrame): boolean
  drained(): Promise<void>
  /** What was sent still arrives. */
  close(): void
  /** At once; the other side sees the loss. */
  abort(): void
}

const nothing = (): void => undefined

/** A run over a stream to another agent. */
export class ChannelTransport implements RunTransport {
  onFrame: (frame: ExecFrame) => void = nothing
  onClosed: (error: Error | null) => void = nothing
  readonly #channel: RunChannel
  readonly #requestId: RequestId
  #closed = false

  constructor(components: { channel: RunChannel }, init: { requestId: RequestId }) {
    this.#channel = components.channel
    this.#requestId = init.requestId
    this.#channel.onBody = (requestId, body) => this.#receive(requestId, body)
    this.#channel.onClosed = (error) => this.#end(error)
  }

  get peer(): RunPeer {
    return this.#channel.link
  }

  get streamNonce(): Uint8Array {
    return this.#channel.streamNonce
  }

  get closed(): boolean {
    return this.#closed
  }

  get heard(): number {
    return this.#channel.link.heard
  }

  send(frame: ExecFrame): boolean {
    return this.#closed || this.#channel.send(this.#requestId, EXEC_PREFIX, execFrame.encode(frame))
  }

  async drained(): Promise<void> {
    if (!this.#closed) await this.#channel.drained()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    // A stream that cannot be closed well is aborted by its owner; nothing is left for us to do.
    this.#channel.close().catch(() => this.#channel.abort())
  }

  abort(): void {
    if (this.#closed) return
    this.#closed = true
    this.#channel.abort()
  }

  #receive(requestId: RequestId, body: Uint8Array): void {
    if (this.#closed) return
    try {
      if (requestId !== this.#requestId) throw new AppError('malformed', 'a message of another request on the stream of this one')
      this.onFrame(decodeExecBody(body))
    } catch (error) {
      this.abort()
      this.onClosed(error as Error)
    }
  }

  #end(error: Error | null): void {
    if (this.#closed) return
    this.#closed = true
    this.onClosed(error)
  }
}

/** A run on this daemon's own executor: the same frames, and no network. */
export class PortTransport implements RunTransport {
  onFrame: (frame: ExecFrame) => void = nothing
  onClosed: (error: Error | null) => void = nothing
  readonly peer: RunPeer
  readonly streamNonce: Uint8Array
  readonly heard = 0
  readonly #executor: Pick<ExecutorClient, 'openRun' | 'drained'>
  #run: RunPort | null = null
  #closed = false

  constructor(components: { executor: Pick<ExecutorClient, 'openRun' | 'drained'> }, init: { peer: RunPeer; streamNonce: Uint8Array }) {
    this.#executor = components.executor
    this.peer = init.peer
    this.streamNonce = init.streamNonce
  }

  get closed(): boolean {
    return this.#closed
  }

  send(frame: ExecFrame): boolean {
    if (this.#closed) return true
    const bytes = execFrame.encode(frame)
    if (this.#run !== null) return this.#run.send(bytes)
    this.#run = this.#executor.openRun(this.peer.number, this.streamNonce, bytes)
    this.#run.onFrame = (answer) => {
      if (!this.#closed) this.onFrame(execFrame.decode(answer))
    }
    this.#run.onClosed = () => {
      if (this.#closed) return
      this.#closed = true
      this.onClosed(null)
    }
    return true
  }

  async drained(): Promise<void> {
    if (!this.#closed) await this.#executor.drained()
  }

  close(): void {
    this.#closed = true
  }

  abort(): void {
    if (this.#closed) return
    this.#closed = true
    this.#run?.over()
  }
}
