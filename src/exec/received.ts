import { type Hash, createHash } from 'node:crypto'
import { MAX_WAITING_FRAMES } from '../protocol/limits/approvals.ts'
import { MAX_WARNINGS_PER_RUN } from '../protocol/limits/wire.ts'
import type { WarningKind } from '../protocol/reasons.ts'
import type { ExecFrame } from '../protocol/wire/exec.ts'
import type { RunEvent } from './run-spec.ts'
import type { RunPeer } from './transport.ts'

/** Checks the sequence numbers of one output stream, and counts and hashes its bytes. */
export class ReceivedStream {
  readonly #hash: Hash = createHash('sha256')
  #digest: Uint8Array | null = null
  #nextSeq = 0
  #bytes = 0

  /** Sequence number of the next frame. */
  get next(): number {
    return this.#nextSeq
  }

  get bytes(): number {
    return this.#bytes
  }

  /** SHA-256 of the received bytes. After reading it, do not add any. */
  get sha256(): Uint8Array {
    this.#digest ??= this.#hash.digest()
    return this.#digest
  }

  /** Returns false if `seq` is not the next number, because bytes are missing or repeated. */
  add(seq: number, data: Uint8Array): boolean {
    if (seq !== this.#nextSeq || this.#digest !== null) return false
    this.#nextSeq += 1
    this.#bytes += data.length
    this.#hash.update(data)
    return true
  }
}

type ReceivedFrame = Extract<ExecFrame, { type: 'started' | 'stdout' | 'stderr' | 'warning' | 'waiting' }>

/** Start, warnings and output of a run as received. Each counts once, over any number of transports. */
export class ReceivedRun {
  readonly output = { stdout: new ReceivedStream(), stderr: new ReceivedStream() }
  readonly #warnings: WarningKind[] = []
  /** PID on the target, or null until the run has started. */
  #pid: number | null = null
  #waiting: Waiting | null = null
  #waits = 0

  get warnings(): readonly WarningKind[] {
    return this.#warnings
  }

  /** Whether the target has sent anything about the run, and so knows it. */
  get begun(): boolean {
    return this.#pid !== null || this.#warnings.length > 0 || this.#waits > 0
  }

  /** Returns the event for the client, null for a repetition after a lost transport, or the problem with the frame. */
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
        // The last waiting frame is repeated after each resumption.
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

/** Whether two waiting frames differ only in the remaining time. */
const isSameWait = (frame: Waiting, last: Waiting | null): boolean =>
  last !== null &&
  frame.reason === last.reason &&
  frame.approvals_needed === last.approvals_needed &&
  frame.approvals_given === last.approvals_given
