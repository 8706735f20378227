import type { PortChannel } from '../../executor-api/codec.ts'
import type { ToExecutor, ToNetwork } from '../../executor-api/messages.ts'
import { NO_BYTES } from '../../protocol/schema.ts'

type OutletChannel = Pick<PortChannel<ToExecutor, ToNetwork>, 'closed' | 'full' | 'send' | 'drained'>

/** Where the frames of one run leave: one stream of its requester. */
export class RunOutlet {
  readonly #channel: OutletChannel
  readonly #run: number
  readonly #onClosed: () => void
  #closed = false

  constructor(components: { channel: OutletChannel }, init: { run: number; onClosed: () => void }) {
    this.#channel = components.channel
    this.#run = init.run
    this.#onClosed = init.onClosed
  }

  /** True when the network's half is behind. */
  get full(): boolean {
    return !this.#closed && this.#channel.full && !this.#channel.closed
  }

  /** Sends one frame, which may be given in parts. */
  send(...frame: readonly Uint8Array[]): void {
    if (!this.#closed) this.#channel.send({ type: 'run_frame', run: this.#run, frame: NO_BYTES }, ...frame)
  }

  async drained(): Promise<void> {
    return this.#channel.drained()
  }

  /** Nothing more comes: later frames are dropped. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#channel.send({ type: 'run_closed', run: this.#run })
    this.#onClosed()
  }
}
