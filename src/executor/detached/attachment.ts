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
  /** Bytes of output to skip. */
  readonly from: number
}

/**
 * One stream on which the owner of a detached run reads its output. All output comes from the file, so it is complete and without repeats.
 * Each attachment has its own window and does not delay the program or other readers.
 */
export class Attachment implements Carried {
  readonly #deps: AttachmentDeps
  readonly #init: AttachmentInit
  readonly #outbox: Outbox
  readonly #lease: Lease
  #gone = false
  #wake: () => void = () => undefined
  #room = true
  #notesSent = 0

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

  /** Sends the output until the run ends or the reader leaves. Never rejects. */
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
      if (frame.type !== 'ack') return this.violated(`${frame.type} from an attached client`)
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
    this.#deps.log.info({ request_id: this.#init.kept.record.request_id, what }, 'an attached client broke the protocol')
    this.#leave()
  }

  /** A stop of the daemon does not detach the reader, which still receives the end of the run. */
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

  /** Tells the reader that the output is gone, because otherwise it would keep asking. */
  #failed(error: unknown): void {
    const { kept, outlet } = this.#init
    const { request_id, state } = kept.record
    // The run expired, and its file was removed, before the file was read.
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
      // Read `over` before the file size, so that everything written before the end is included.
      const { over } = kept
      this.#sendNotes()
      const end = kept.written.file
      const output = await reader.next(end)
      if (output === null) {
        if (over) return
        // Without this error the loop would not end.
        if (reader.place.file < end) throw new Error(`the file ends before byte ${end}, which was written`)
        await this.#changed(kept, reader.place.file)
        continue
      }
      this.#room = this.#outbox.push(output.stream, output.data.subarray(left))
      left = 0
      while (!this.#room && !this.#gone) await this.#woken()
    }
  }

  /** Waits until more is written, the run is over, or the reader has left. */
  async #changed(kept: DetachedRunRecord, file: number): Promise<void> {
    while (!this.#gone && !kept.over && kept.written.file === file && this.#notesSent === kept.notes.length) await this.#woken()
  }

  async #woken(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#wake = resolve
    await promise
  }

  #sendNotes(): void {
    for (const note of this.#init.kept.notes.slice(this.#notesSent)) this.#outbox.note(note)
    this.#notesSent = this.#init.kept.notes.length
  }
}
