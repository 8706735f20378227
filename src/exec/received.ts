import { type Hash, createHash } from 'node:crypto'
import { MAX_WAITING_FRAMES } from '../protocol/limits/approvals.ts'
import { MAX_WARNINGS_PER_RUN } from '../protocol/limits/wire.ts'
import type { WarningKind } from '../protocol/reasons.ts'
import type { ExecFrame } from '../protocol/wire/exec.ts'
import type { RunEvent } from './run-spec.ts'
import type { RunPeer } from './transport.ts'

/** One output stream as it arrives: its numbers without holes, its bytes counted and hashed. */
export class ReceivedStream {
  readonly #hash: Hash = createHash('sha256')
  #digest: Uint8Array | null = null
  #nextSeq = 0
  #bytes = 0

  /** The number of the next frame. */
  get next(): number {
    return this.#nextSeq
  }

  get bytes(): number {
    return this.#bytes
  }

  /** SHA-256 of what arrived; nothing may be added afterwards. */
  get sha256(): Uint8Array {
    this.#digest ??= this.#hash.digest()
    return this.#digest
  }

  /** False when `seq` is not the next one: bytes are missing or repeated. */
  add(seq: number, data: Uint8Array): boolean {
    if (seq !== this.#nextSeq || this.#digest !== null) return false
    this.#nextSeq += 1
    this.#bytes += data.length
    this.#hash.update(data)
    return true
  }
}

type ReceivedFrame = Extract<ExecFrame, { type: 'started' | 'stdout' | 'stderr' | 'warning' | 'waiting' }>

/** What the other side has told of a run: its start, each warning and each byte of its output count once, over however many transports they come. */
export class ReceivedRun {
  readonly output = { stdout: new ReceivedStream(), stderr: new ReceivedStream() }
  readonly #warnings: WarningKind[] = []
  /** Of the process on the other machine; null until Started. */
  #pid: number | null = null
  /** The last Waiting frame, and how many told of something new. */
  #waiting: Waiting | null = null
  #waits = 0

  get warnings(): readonly WarningKind[] {
    return this.#warnings
  }

  /** Whether it has told anything: then it knows the run. */
  get begun(): boolean {
    return this.#pid !== null || this.#warnings.length > 0 || this.#waits > 0
  }

  /** The event for the caller, null for what was told before on a transport that is lost, or what is wrong with the frame. */
  take(frame: ReceivedFrame, { peer, resumed }: { readonly peer: RunPeer; readonly resumed: boolean }): RunEvent | string | null {
    switch (frame.type) {
      case 'started': {
        const { request_id, pid } = frame
        if (resumed && pid === this.#pid) return null
        if (this.#pid !== null) return 'the run was started twice'
        this.#pid = pid
        return { type: 'started', request_id, agent_id: peer.agentId, machine_id: peer.machineId, pid }
      }
      case 'stdout':
      case 'stderr': {
        const { type, seq, data } = frame
        if (this.#pid === null) return 'output came before the start'
        return data.length > 0 && this.output[type].add(seq, data) ? frame : `bytes of ${type} are missing (frame ${seq})`
      }
      case 'waiting': {
        if (this.#pid !== null) return 'the run waits for an approval after its start'
        // Each resumption brings the last one again.
        if (resumed && isSameWait(frame, this.#waiting)) return null
        this.#waiting = frame
        if (++this.#waits > MAX_WAITING_FRAMES) return 'too many waiting frames came'
        return { ...frame, type: 'waiting_for_approval', agent_id: peer.agentId, machine_id: peer.machineId }
      }
      case 'warning':
        if (resumed && this.#warnings.includes(frame.kind)) return null
        if (this.#warnings.length >= MAX_WARNINGS_PER_RUN) return 'too many warnings came'
        this.#warnings.push(frame.kind)
        return frame
    }
  }
}

type Waiting = Extract<ReceivedFrame, { type: 'waiting' }>

/** Time alone has passed between the two. */
const isSameWait = (frame: Waiting, last: Waiting | null): boolean =>
  last !== null &&
  frame.reason === last.reason &&
  frame.approvals_needed === last.approvals_needed &&
  frame.approvals_given === last.approvals_given
