import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { PeerRunHandle } from '../executor-api/peer-run.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import { EXEC_PREFIX, type ExecFrame, decodeExecBody, execFrame } from '../protocol/wire/exec.ts'

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
export class ExecutorTransport implements RunTransport {
  onFrame: (frame: ExecFrame) => void = nothing
  onClosed: (error: Error | null) => void = nothing
  readonly peer: RunPeer
  readonly streamNonce: Uint8Array
  readonly heard = 0
  readonly #executor: Pick<ExecutorClient, 'openRun' | 'drained'>
  #run: PeerRunHandle | null = null
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

/** Opens another transport to the same agent and machine. `silent`: the lost one was not closed, but nothing came on it any more. */
export type Reopen = (silent: boolean, signal: AbortSignal) => Promise<RunTransport>

export interface ResumableTransportComponents {
  readonly transport: RunTransport
  readonly clock: Clock
  /** Null for a run on this daemon's own executor: its transport is lost only with the executor. */
  readonly reopen: Reopen | null
}

export interface ResumableTransportInit {
  readonly requestId: RequestId
  /** Sequence numbers of the frames of output that are expected next. */
  position(): { readonly stdout: number; readonly stderr: number }
  onFrame(frame: ExecFrame): void
  /** The run was resumed on another transport; the other side has stdin below this number. */
  onResumed(stdin: number): void
  /** The other side has never seen the Request, and has made its nonce void. Answers the same Request, signed for this transport; throws where it is not to be sent again. */
  signAgain(transport: RunTransport): Promise<ExecFrame>
  /** The Request of `signAgain` was sent: nothing else of the run was sent on this transport. */
  onSentAgain(): void
  /** Once: the run cannot be followed any more. `foreign`: because of what the other side sent. */
  onLost(message: string, foreign: boolean): void
}

/** Of `ExecutorLinks`. */
export interface ChannelSource {
  /** Whether a link to the agent stands, so that nobody has to be dialled for it. */
  isLinked(agentId: AgentId): boolean
  openChannel(agentId: AgentId, signal: AbortSignal): Promise<RunChannel>
  /** To this agent on this machine and no other. `silent`: what connects us to the machine now is to be given up first. */
  reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<RunChannel>
}

export interface TransportsComponents {
  /** Null where there is no mesh: then only this daemon itself can be asked. */
  readonly links: ChannelSource | null
  readonly executor: Pick<ExecutorClient, 'identity' | 'mintNonces' | 'openRun' | 'drained'>
}

/** The port's link of this daemon to itself. */
export const OWN_LINK = 0

/** Ways to the agents that can be asked: streams to others, and the port to our own executor. */
export class Transports {
  readonly #parts: TransportsComponents

  constructor(components: TransportsComponents) {
    this.#parts = components
  }

  /** Whether a way to the agent has to be made first. */
  mustDial(agentId: AgentId): boolean {
    const { executor, links } = this.#parts
    return agentId !== executor.identity.agentId && links?.isLinked(agentId) === false
  }

  /** Throws what dialling throws: `unknown_agent`, `peer_unreachable`, `peer_rejected`, `timeout`. */
  async open(agentId: AgentId, requestId: RequestId, signal: AbortSignal): Promise<RunTransport> {
    const { executor, links } = this.#parts
    if (agentId !== executor.identity.agentId) {
      if (links === null) throw new AppError('peer_unreachable', 'there is no mesh here: only this agent itself can be asked')
      return new ChannelTransport({ channel: await links.openChannel(agentId, signal) }, { requestId })
    }
    const [streamNonce] = await executor.mintNonces(OWN_LINK, 1)
    if (streamNonce === undefined) throw new AppError('internal', 'the executor minted no nonce')
    return new ExecutorTransport({ executor }, { peer: { number: OWN_LINK, ...executor.identity }, streamNonce })
  }

  /** To this agent on this machine and no other. Throws as `open`. */
  async openAt(to: { agentId: AgentId; machineId: MachineId }, requestId: RequestId, signal: AbortSignal): Promise<RunTransport> {
    const { executor, links } = this.#parts
    const isOwn = to.agentId === executor.identity.agentId && to.machineId === executor.identity.machineId
    if (isOwn || links === null) return this.open(to.agentId, requestId, signal)
    return new ChannelTransport({ channel: await links.reopenChannel(to, false, signal) }, { requestId })
  }

  /** Null for this daemon itself: there is no network in between. */
  reopenerOf({ peer }: RunTransport, requestId: RequestId): Reopen | null {
    const { links } = this.#parts
    if (links === null || peer.number === OWN_LINK) return null
    return async (silent, signal) => new ChannelTransport({ channel: await links.reopenChannel(peer, silent, signal) }, { requestId })
  }
}
