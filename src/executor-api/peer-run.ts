import { NO_BYTES } from '../protocol/wire/schema.ts'
import type { ExecutorChannel } from './channel.ts'
import type { ToExecutor, ToNetwork } from './messages.ts'

const nothing = (): void => undefined

/** A run in the network process. It exchanges encoded exec-frames with the executor. Only the client creates it. */
export class ExecutorPeerRun {
  /** Receives the executor's frames for the peer. Set it before the next turn of the event loop. */
  onFrame: (frame: Uint8Array) => void = nothing
  /** Called once when no more frames come. */
  onClosed: () => void = nothing
  readonly #run: number
  readonly #channel: ExecutorChannel<ToNetwork, ToExecutor>
  #ended = false

  constructor(deps: { channel: ExecutorChannel<ToNetwork, ToExecutor> }, init: { run: number }) {
    this.#channel = deps.channel
    this.#run = init.run
  }

  /** Passes on a frame of the peer. If it returns false, the channel is full, and the caller must wait for `ExecutorClient.drained()`. */
  send(frame: Uint8Array): boolean {
    return this.#ended || this.#channel.send({ type: 'run_frame', run: this.#run, frame: NO_BYTES }, frame)
  }

  /** The peer's stream was lost. The run waits to be resumed. `onClosed` still comes. */
  lost(): void {
    if (!this.#ended) this.#channel.send({ type: 'run_lost', run: this.#run })
  }

  /** The peer is done with the run. It has the Exit, does not want it, or broke the protocol. `onClosed` still comes. */
  over(): void {
    if (!this.#ended) this.#channel.send({ type: 'run_over', run: this.#run })
  }

  ended(): void {
    if (this.#ended) return
    this.#ended = true
    this.onClosed()
  }
}

export type PeerRunHandle = Omit<ExecutorPeerRun, 'ended'>
