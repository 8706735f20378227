import { type Hash, createHash } from 'node:crypto'
import { AppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import type { ExecExit, ExecFrame } from '../../protocol/exec.ts'
import { fromHex, toHex } from '../../protocol/ids.ts'
import { MAX_WARNINGS_PER_RUN } from '../../protocol/limits.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import { type SignedBody, compareOutput, outcomeOf, readExit } from '../exit.ts'
import type { RunEvent, RunOutcome } from '../run-spec.ts'
import type { RunPeer } from '../transport.ts'
import { type DetachedEvent, type DetachedInfo, type DetachedSink, type DetachedTarget, infoOf } from './detached-types.ts'

type FrameOf<T extends ExecFrame['type']> = Extract<ExecFrame, { type: T }>
export type Own = { readonly agentId: string; readonly machineId: string }

/** What of one stream has come, and what of it was not wanted. */
class Stream {
  readonly #hash: Hash = createHash('sha256')
  before = 0
  received = 0

  get bytes(): number {
    return this.before + this.received
  }

  get sha256(): Uint8Array {
    return this.#hash.copy().digest()
  }

  add(data: Uint8Array): void {
    this.received += data.length
    this.#hash.update(data)
  }
}

/** The Exit of a run, when its agent signed it and it answers one of these Requests; otherwise what is wrong. */
export const readExitOf = (
  frame: SignedBody,
  target: DetachedTarget,
  peer: RunPeer,
  to: Own,
): { exit: ExecExit; sha256: string } | string => {
  const about = { requestId: target.request_id, from: peer, to }
  let problem = 'it answers none of our requests'
  for (const hex of target.request_sha256) {
    const exit = readExit(frame, { ...about, requestSha256: fromHex(hex) })
    if (typeof exit !== 'string') return { exit, sha256: hex }
    problem = exit
  }
  return problem
}

export interface AttachedRunInit {
  readonly target: DetachedTarget
  readonly from: number
}

/** The output of a detached run as it comes, each byte once, over however many streams. */
export class AttachedRun {
  readonly #sink: DetachedSink
  readonly #init: AttachedRunInit
  readonly #output = { stdout: new Stream(), stderr: new Stream() }
  readonly #warnings: WarningKind[] = []
  #pid: number | null = null
  #attached = 0
  #state: FrameOf<'detached'> | null = null
  #peer: RunPeer | null = null
  /** Of the next byte that is shown. */
  #shown: number

  constructor(components: { readonly sink: DetachedSink }, init: AttachedRunInit) {
    this.#sink = components.sink
    this.#init = init
    this.#shown = init.from
  }

  /** The offset behind all that has come. */
  get next(): number {
    const { stdout, stderr } = this.#output
    return this.#init.from + stdout.received + stderr.received
  }

  /** How often it was told how the run is: the connection is there. */
  get attached(): number {
    return this.#attached
  }

  /** Throws `malformed` for what cannot be, `unknown_run`, and `bad_request` where there is less output than is to be left out. */
  take(frame: FrameOf<'detached' | 'started' | 'stdout' | 'stderr' | 'warning'>, peer: RunPeer): RunEvent | null {
    switch (frame.type) {
      case 'detached':
        this.#attach(frame, peer)
        return null
      case 'started':
        if (this.#pid === frame.pid) return null
        if (this.#pid !== null) throw new AppError('malformed', 'the run was started twice')
        this.#pid = frame.pid
        return { ...frame, agent_id: peer.agentId, machine_id: peer.machineId }
      case 'warning':
        if (this.#warnings.includes(frame.kind)) return null
        if (this.#warnings.length >= MAX_WARNINGS_PER_RUN) throw new AppError('malformed', 'too many warnings came')
        this.#warnings.push(frame.kind)
        return frame
      case 'stdout':
      case 'stderr':
        this.#output[frame.type].add(frame.data)
        return frame
    }
  }

  async show(event: RunEvent): Promise<void> {
    if (event.type === 'started' || event.type === 'warning') return this.#tell(event)
    if (!('data' in event)) return
    const offset = this.#shown
    this.#shown += event.data.length
    return this.#tell({ type: event.type, request_id: event.request_id, data: event.data, offset })
  }

  /** Of the verified Exit. Throws `peer_rejected` for one that is not to be believed. */
  outcomeOf(frame: SignedBody, peer: RunPeer, own: Own): RunOutcome {
    const read = readExitOf(frame, this.#init.target, peer, own)
    if (typeof read === 'string') throw new AppError('peer_rejected', `the end of the run is not to be believed: ${read}`)
    const problem = compareOutput(read.exit, this.#output, this.#warnings)
    return outcomeOf(read.exit, problem, {
      requestId: this.#init.target.request_id,
      peer,
      received: this.#output,
      elapsedMs: 0,
      warnings: this.#warnings,
      waitedMs: null,
      neverArrived: false,
    })
  }

  /** As it is known now that its Exit has come. */
  ended(peer: RunPeer): DetachedInfo {
    if (this.#state === null) throw new AppError('internal', 'a run ended that was not there')
    return { ...infoOf(this.#state, peer), state: 'ended', bytes_kept: this.next, lifetime_left_ms: null }
  }

  async #tell(event: DetachedEvent): Promise<void> {
    await this.#sink.event(event)
  }

  /** Tells the sink how the run is, or that the connection was lost meanwhile. */
  async greet(): Promise<void> {
    if (this.#state === null || this.#peer === null) return
    if (this.#attached > 1) await this.#tell({ type: 'reattached', offset: this.#shown })
    else await this.#tell({ type: 'run_state', info: infoOf(this.#state, this.#peer), from: this.#init.from })
  }

  #attach(frame: FrameOf<'detached'>, peer: RunPeer): void {
    const { target } = this.#init
    const { state, stdout_before, stderr_before, kept, request_sha256 } = frame
    if (state === 'unknown' || state === 'expired') throw unknownRun(state)
    if (kept < this.next)
      throw new AppError('bad_request', `${this.next} bytes of output are to be left out, and ${kept} are kept`, {
        data: { bytes_kept: kept, next: `begin with byte ${kept} at most; with 0, all that is kept is shown` },
      })
    if (!target.request_sha256.some((hex) => equalBytes(fromHex(hex), request_sha256)))
      throw new AppError('malformed', `it is for the Request ${toHex(request_sha256)}, which is none of ours`)
    const { stdout, stderr } = this.#output
    if (stdout_before + stderr_before !== this.next) throw new AppError('malformed', 'it goes on from another byte than was asked for')
    if (this.#attached === 0) {
      stdout.before = stdout_before
      stderr.before = stderr_before
    } else if (stdout_before !== stdout.bytes || stderr_before !== stderr.bytes)
      throw new AppError('malformed', 'it goes on from another byte than was asked for')
    this.#attached += 1
    this.#state = frame
    this.#peer = peer
  }
}

export const unknownRun = (state: 'unknown' | 'expired'): AppError =>
  new AppError(
    'unknown_run',
    state === 'expired'
      ? 'the run is over, and what was kept of it is forgotten there'
      : 'the agent knows no detached run of ours under that id: it never began, or was of another agent or machine, or is forgotten',
    { data: { state } },
  )

export const hashOf = (body: Uint8Array): string => toHex(sha256(body))
