import type { Clock } from '../base/clock.ts'
import { AppError, type ErrorCode, isAppError } from '../base/errors.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { PeerRunHandle } from '../executor-api/peer-run.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import { EXEC_PREFIX, type ExecFrame, decodeExecBody, execFrame } from '../protocol/wire/exec.ts'

/** The other end of a transport, as its link proved it. */
export interface RunPeer {
  /** Number of the link in the executor API. 0 is this daemon itself. */
  readonly number: number
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
}

/** The members of a `DmChannel` that a run needs. */
export interface RunChannel {
  readonly link: RunPeer & { readonly heard: number }
  /** Nonce of this stream, minted by the responder. */
  readonly streamNonce: Uint8Array
  onBody: (requestId: RequestId, body: Uint8Array) => void
  onClosed: (error: Error | null) => void
  /** Sends a body, given whole or in parts. If it returns false, the body was accepted, but wait for `drained()` before the next. */
  send(requestId: RequestId, ...body: readonly Uint8Array[]): boolean
  drained(): Promise<void>
  close(): Promise<void>
  abort(): void
}

/** Carries the frames of one run, over a network or within this daemon. */
export interface RunTransport {
  readonly peer: RunPeer
  readonly streamNonce: Uint8Array
  onFrame: (frame: ExecFrame) => void
  /** Called once, but not after `close` or `abort`. */
  onClosed: (error: Error | null) => void
  /** True when no more frames can arrive. */
  readonly closed: boolean
  /** Changes with every message on the peer's connection, of this run or not, which shows that the path works. */
  readonly heard: number
  /** The first frame must be Request or Resume. If it returns false, wait for `drained()`. */
  send(frame: ExecFrame): boolean
  drained(): Promise<void>
  /** Frames sent before still arrive. */
  close(): void
  /** Ends at once. The peer sees a lost stream. */
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
    // If the stream cannot be closed normally, it is aborted.
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

/** A run on this daemon's own executor. It has the same frames without a network. */
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

/** Opens another transport to the same agent and machine. `silent` means that the lost one was silent and not closed. */
export type Reopen = (silent: boolean, signal: AbortSignal) => Promise<RunTransport>

export interface ResumableTransportComponents {
  readonly transport: RunTransport
  readonly clock: Clock
  /** Null for a run on this daemon's own executor, whose transport is lost only with the executor. */
  readonly reopen: Reopen | null
}

export interface ResumableTransportInit {
  readonly requestId: RequestId
  /** Sequence numbers of the next expected output frames. */
  position(): { readonly stdout: number; readonly stderr: number }
  onFrame(frame: ExecFrame): void
  /** The run was resumed on another transport. The target has all stdin below this number. */
  onResumed(stdin: number): void
  /** The target has never seen the Request and has made its nonce void. Returns a new signed Request, or throws to give up. */
  signAgain(transport: RunTransport): Promise<ExecFrame>
  /** The Request of `signAgain` was sent, as the first frame on this transport. */
  onSentAgain(): void
  /** Called when the connection is lost, and when the run continues. Not called for a move to another connection. */
  onConnection?(state: 'disconnected' | 'resumed'): void
  /** Called once, when the run can no longer be followed. `foreign` means that the peer sent an invalid frame. */
  onLost(message: string, foreign: boolean): void
}

/** The methods of `Links` that runs need. */
export interface ChannelSource {
  /** Whether there is a link to the agent, so that no dial is needed. */
  isLinked(agentId: AgentId): boolean
  openChannel(agentId: AgentId, signal: AbortSignal): Promise<RunChannel>
  /** Opens a channel to this agent on this machine. If `silent`, the quiet connections to it are replaced. */
  reopenChannel(to: { agentId: AgentId; machineId: MachineId }, silent: boolean, signal: AbortSignal): Promise<RunChannel>
}

type TransportsDeps = {
  readonly links: ChannelSource | null
  readonly executor: Pick<ExecutorClient, 'identity' | 'mintNonces' | 'openRun' | 'drained'>
}

/** Errors of a target that restarts. */
const GONE: readonly ErrorCode[] = ['peer_unreachable', 'peer_rejected', 'timeout']

/** Whether the target could not be asked, because it restarts. With `may_run`, it may have begun the run. */
export const isTargetGone = (error: unknown): boolean => isAppError(error) && GONE.includes(error.code) && error.data['may_run'] !== true

/** Number of this daemon's link to itself. */
export const OWN_LINK = 0

/** Opens transports. To other agents these are streams, to this daemon's own agent the executor API. */
export class Transports {
  readonly #deps: TransportsDeps

  constructor(deps: TransportsDeps) {
    this.#deps = deps
  }

  /** Whether a connection to the agent must be dialled first. */
  mustDial(agentId: AgentId): boolean {
    const { executor, links } = this.#deps
    return agentId !== executor.identity.agentId && links?.isLinked(agentId) === false
  }

  /** Throws `unknown_agent`, `peer_unreachable`, `peer_rejected`, `timeout`. */
  async open(agentId: AgentId, requestId: RequestId, signal: AbortSignal): Promise<RunTransport> {
    const { executor, links } = this.#deps
    if (agentId !== executor.identity.agentId) {
      if (links === null) throw new AppError('peer_unreachable', 'this program has no mesh: it can only run commands on this machine')
      return new ChannelTransport({ channel: await links.openChannel(agentId, signal) }, { requestId })
    }
    const [streamNonce] = await executor.mintNonces(OWN_LINK, 1)
    if (streamNonce === undefined) throw new AppError('internal', 'the executor process issued no nonce')
    return new ExecutorTransport({ executor }, { peer: { number: OWN_LINK, ...executor.identity }, streamNonce })
  }

  /** Opens a transport to this agent on this machine. Throws as `open`. */
  async openAt(to: { agentId: AgentId; machineId: MachineId }, requestId: RequestId, signal: AbortSignal): Promise<RunTransport> {
    const { executor, links } = this.#deps
    const isOwn = to.agentId === executor.identity.agentId && to.machineId === executor.identity.machineId
    if (isOwn || links === null) return this.open(to.agentId, requestId, signal)
    return new ChannelTransport({ channel: await links.reopenChannel(to, false, signal) }, { requestId })
  }

  /** Null for this daemon itself, which needs no network. */
  reopenerOf({ peer }: RunTransport, requestId: RequestId): Reopen | null {
    const { links } = this.#deps
    if (links === null || peer.number === OWN_LINK) return null
    return async (silent, signal) => new ChannelTransport({ channel: await links.reopenChannel(peer, silent, signal) }, { requestId })
  }
}
