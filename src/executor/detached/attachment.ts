import { errorText } from '../../base/errors.ts'
import { execFrame } from '../../protocol/wire/exec.ts'
import type { EndCause } from '../runs/execution.ts'
import type { PeerStreamWriter } from '../runs/frames.ts'
import { Lease } from '../runs/lease.ts'
import { Outbox, type UnackedTotal } from '../runs/outbox.ts'
import type { Carried } from '../runs/peer-approvals.ts'
import type { ExecutorServices } from '../services.ts'
import type { DetachedRunRecord } from './record.ts'
import { type SpoolReader, keptBefore } from './spool.ts'

type AttachmentDeps = Pick<ExecutorServices, 'clock' | 'counters' | 'log'> & { readonly total: UnackedTotal }

export interface AttachmentInit {
  readonly kept: DetachedRunRecord
  readonly outlet: PeerStreamWriter
  /** Bytes of output that are left out. */
  readonly from: number
}

/**
 * One owner's stream on which a detached run is read: all from the file, whatever is in it already and whatever comes, so that
 * nothing is left out or told twice. It has a window of its own: nobody else waits for it, neither the program.
 */
export class Attachment implements Carried {
  readonly #deps: AttachmentDeps
  readonly #init: AttachmentInit
  readonly #outbox: Outbox
  readonly #lease: Lease
  #gone = false
  #wake: () => void = () => undefined
  #room = true
  #told = 0

  constructor(deps: AttachmentDeps, init: AttachmentInit) {
    this.#deps = deps
    this.#init = init
    const { total, clock } = deps
    const onRoom = (): void => {
      this.#room = true
      this.#wake()
    }
    this.#outbox = new Outbox({ total }, { requestId: init.kept.record.request_id, onRoom })
    this.#lease = new Lease({ clock }, { onExpired: () => this.#leave() })
  }

  /** Tells all of it to its end, or until its reader leaves. Never rejects. */
  async run(): Promise<void> {
    const { kept, outlet } = this.#init
    const stop = kept.watch(() => this.#wake())
    try {
      await kept.measured()
      await this.#emit()
      if (!this.#gone) this.#outbox.flush()
    } catch (error) {
      this.#failed(error)
    } finally {
      stop()
      this.#lease.stop()
      this.#outbox.close()
      outlet.close()
    }
  }

  receive(bytes: Uint8Array): void {
    this.#lease.renew()
    try {
      const frame = execFrame.decode(bytes)
      if (frame.type === 'lease_renew') return
      if (frame.type !== 'ack') return this.violated(`${frame.type} from who is attached`)
      if (frame.request_id !== this.#init.kept.record.request_id) return this.#deps.counters.count('malformed_frames')
      this.#outbox.ack(frame)
    } catch (error) {
      this.violated(errorText(error))
    }
  }

  lost(): void {
    this.#leave()
  }

  over(): void {
    this.#leave()
  }

  violated(what: string): void {
    this.#deps.counters.count('malformed_frames')
    this.#deps.log.info({ request_id: this.#init.kept.record.request_id, what }, 'a peer broke the protocol of an attach')
    this.#leave()
  }

  /** Whoever reads is told the ends of runs that a stop brings about. */
  end(cause: EndCause): void {
    if (cause !== 'daemon_stopping') this.#leave()
  }

  kill(): void {
    this.#leave()
  }

  #leave(): void {
    this.#gone = true
    this.#room = true
    this.#outbox.close()
    this.#init.outlet.close()
    this.#wake()
  }

  /** Whoever reads is told at once: it would ask again and again, and be told nothing else. */
  #failed(error: unknown): void {
    const { kept, outlet } = this.#init
    const { request_id, state } = kept.record
    // It was let go of, and its file with it, just before that was to be read.
    if (state === 'expired') return outlet.send(execFrame.encode(kept.frame()))
    this.#deps.log.error({ request_id, error: errorText(error) }, 'a detached run could not be read')
    if (!this.#gone) this.#outbox.flush()
    outlet.send(execFrame.encode({ type: 'gone', request_id, unseen: false }))
  }

  async #emit(): Promise<void> {
    const { kept, outlet, from } = this.#init
    const { state } = kept.record
    if (from > keptBefore(kept.written) || state === 'expired' || this.#gone) {
      outlet.send(execFrame.encode(kept.frame()))
      return
    }
    const reader = kept.reader(from)
    try {
      const { cut, before } = await reader.skipTo(from, kept.written.file, () => !this.#gone)
      if (this.#gone) return
      if (keptBefore(before) !== from) throw new Error(`the file ends before byte ${from} of the output, which was written`)
      this.#outbox.note(execFrame.encode(kept.frame(before)))
      this.#outbox.attach(outlet, { stdout: 0, stderr: 0 })
      await this.#copy(reader, cut)
    } finally {
      await reader.close()
    }
    if (!this.#gone) this.#outbox.finish(kept.exit ?? execFrame.encode(kept.frame()))
  }

  async #copy(reader: SpoolReader, cut: number): Promise<void> {
    const { kept } = this.#init
    let left = cut
    while (!this.#gone) {
      // In this order: what is written before it is over is read after it is known to be.
      const { over } = kept
      this.#tellNotes()
      const end = kept.written.file
      const output = await reader.next(end)
      if (output === null) {
        if (over) return
        // It would be looked for without end.
        if (reader.place.file < end) throw new Error(`the file ends before byte ${end}, which was written`)
        await this.#changed(kept, reader.place.file)
        continue
      }
      this.#room = this.#outbox.push(output.stream, output.data.subarray(left))
      left = 0
      while (!this.#room && !this.#gone) await this.#woken()
    }
  }

  /** More is written, or it is over, or the reader has left. */
  async #changed(kept: DetachedRunRecord, file: number): Promise<void> {
    while (!this.#gone && !kept.over && kept.written.file === file && this.#told === kept.notes.length) await this.#woken()
  }

  async #woken(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#wake = resolve
    await promise
  }

  #tellNotes(): void {
    for (const note of this.#init.kept.notes.slice(this.#told)) this.#outbox.note(note)
    this.#told = this.#init.kept.notes.length
  }
}
