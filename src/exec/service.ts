import { type Evictable, RetentionPool } from '../base/bounded-collections.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import { reach } from '../base/run-stages.ts'
import type { PeerRunHandle } from '../executor-api/peer-run.ts'
import { isOver } from '../protocol/api/detached-run.ts'
import { type RequestId, shortId } from '../protocol/ids.ts'
import { FRAME_COST } from '../protocol/limits/wire.ts'
import { isOfUnlisted } from '../protocol/reasons.ts'
import { EXEC_PREFIX, type ExecFrame, decodeExecBody, execExit, execFrame } from '../protocol/wire/exec.ts'
import type { RequesterCounter } from './counters.ts'
import { type RunTraces, contextOf } from './run-traces.ts'
import type { NetworkServices } from './services.ts'
import type { RunChannel } from './transport.ts'

/** Limits of frames that wait for slow peers after their runs have ended. Ten of the longest outputs fit. */
export const UNREAD = {
  count: 4_096,
  bytes: 64 * 1024 * 1024,
  countPerOwner: 256,
} as const

/** Frames that open a stream, with the counter of each. */
const ARRIVALS: Partial<Record<ExecFrame['type'], RequesterCounter>> = {
  request: 'peer_runs',
  terminal_request: 'peer_runs',
  detach_request: 'peer_runs',
  detached_ask: 'peer_detached_asked',
  rules_request: 'peer_rules_asked',
  approval_request: 'peer_approvals_asked',
}

type BodyHandler = (channel: RunChannel, requestId: RequestId, body: Uint8Array) => void

type ExecServiceDeps = Pick<NetworkServices, 'counters' | 'executor' | 'log' | 'traces'> & {
  /** Called when the executor denies a request of an agent that the trust rules do not accept. */
  onUnlistedDenied(peer: RunChannel['link']): void
}

/** Serves peers. It passes their signed frames to the executor and its frames back, without deciding anything. */
export class ExecService {
  readonly #deps: ExecServiceDeps
  readonly #runs = new PeerRuns()

  constructor(deps: ExecServiceDeps) {
    this.#deps = deps
  }

  /** Handles the first body of exec on a channel. The channel then belongs to that run. */
  readonly onBody: BodyHandler = (channel, requestId, body) => {
    const run = new PeerRunRelay({ ...this.#deps, channel, runs: this.#runs }, { requestId })
    channel.onBody = (id, next) => run.receive(id, next)
    channel.onClosed = (error) => run.closed(error)
    run.receive(requestId, body)
  }

  /** Registers for the bodies of exec. */
  register(dispatcher: { route(prefix: Uint8Array, handler: BodyHandler): void }): void {
    dispatcher.route(EXEC_PREFIX, this.onBody)
  }
}

/** The current `PeerRunRelay` of each run, by peer and request ID. */
class PeerRuns {
  readonly #runs = new Map<string, PeerRunRelay>()
  /** Runs that the executor has finished, with frames that their peers have not read. */
  readonly unread = new RetentionPool(UNREAD)

  /** Adds a new run. If its name is taken, the first run keeps it, and the executor refuses the second. */
  opened(name: string, run: PeerRunRelay): void {
    if (!this.#runs.has(name)) this.#runs.set(name, run)
  }

  /** Replaces the relay of a run that its peer resumed on another channel. Frames of the old relay are no longer needed. */
  resumed(name: string, run: PeerRunRelay): void {
    this.#runs.get(name)?.replaced()
    this.#runs.set(name, run)
  }

  /** Whether another channel has this run. */
  elsewhere(name: string, run: PeerRunRelay): boolean {
    return (this.#runs.get(name) ?? run) !== run
  }

  ended(name: string, run: PeerRunRelay): void {
    if (this.#runs.get(name) === run) this.#runs.delete(name)
    this.unread.delete(run)
  }
}

type PeerRunDeps = ExecServiceDeps & { readonly channel: RunChannel; readonly runs: PeerRuns }

/** A frame of the executor. `output` has the sequence number that the peer may acknowledge after it is sent. */
interface Answer {
  readonly bytes: Uint8Array
  readonly output: { readonly type: 'stdout' | 'stderr'; readonly seq: number } | null
}

/** One run of a peer, on one channel. */
class PeerRunRelay implements Evictable {
  readonly #deps: PeerRunDeps
  readonly #requestId: RequestId
  #run: PeerRunHandle | null = null
  /** Frames of the executor that wait for a slow peer. The run's window bounds them while it lives, then `UNREAD`. */
  readonly #queue: Answer[] = []
  #queuedBytes = 0
  /** Sequence numbers of the first output frames that were not sent to the peer. */
  #unsent: { stdout: number; stderr: number } = { stdout: 0, stderr: 0 }
  #sending = false
  #ended = false
  #finished = false
  /** The stream was lost, and the run may be resumed on another. */
  #isLost = false
  /** Last stdin number that the executor acknowledged, or null while it is unknown. */
  #stdinAcked: number | null = null
  #answered = false
  /** Null without tracing, and for streams that carry no run. */
  #traces: RunTraces | null = null

  constructor(deps: PeerRunDeps, init: { requestId: RequestId }) {
    this.#deps = deps
    this.#requestId = init.requestId
  }

  /** Unique, because it contains the peer. */
  get #name(): string {
    const { agentId, machineId } = this.#deps.channel.link
    return `${agentId}:${machineId}:${this.#requestId}`
  }

  get #isElsewhere(): boolean {
    return this.#deps.runs.elsewhere(this.#name, this)
  }

  get retainedBytes(): number {
    return this.#queuedBytes
  }

  /** Drops the waiting frames. If the peer then resumes the run, the answer is Gone. */
  evict(): void {
    this.#leave(() => undefined)
    this.#deps.channel.abort()
  }

  receive(requestId: RequestId, body: Uint8Array): void {
    if (this.#ended) return
    try {
      if (requestId !== this.#requestId) throw new AppError('malformed', 'a message of another request')
      const frame = decodeExecBody(body)
      if (frame.type === 'trace' && this.#run !== null) this.#traces?.joined(requestId, contextOf(frame))
      else this.#take(frame, body.subarray(EXEC_PREFIX.length))
    } catch (error) {
      this.#deps.counters.add('peer_malformed')
      this.#deps.log.warn(
        { agent: shortId(this.#deps.channel.link.agentId), request_id: this.#requestId },
        `a run's stream ended: ${errorText(error)}`,
      )
      this.#leave((port) => port.over())
      this.#deps.channel.abort()
    }
  }

  /** The channel has ended. After a normal end or a malformed frame, the run is over. Otherwise the peer may resume it. */
  closed(error: Error | null): void {
    this.#isLost = error !== null && !isAppError(error, 'malformed')
    // Recorded before the executor answers, because the run may be resumed sooner.
    if (this.#isLost && this.#run !== null && !this.#finished && !this.#isElsewhere) this.#traces?.lost(this.#requestId)
    this.#leave((port) => (this.#isLost ? port.lost() : port.over()))
  }

  replaced(): void {
    this.#leave((port) => port.lost())
    this.#deps.channel.abort()
  }

  #leave(tell: (port: PeerRunHandle) => void): void {
    if (this.#ended) return
    this.#end()
    this.#queue.length = 0
    this.#queuedBytes = 0
    if (this.#run !== null) tell(this.#run)
  }

  #end(): void {
    this.#ended = true
    this.#deps.runs.ended(this.#name, this)
  }

  #take(frame: ExecFrame, bytes: Uint8Array): void {
    if (this.#run === null) {
      this.#start(frame, bytes)
      return
    }
    // An acknowledgement of frames in `#queue` would open the window, and the queue could grow to all of the output.
    if (frame.type === 'ack' && (frame.stdout > this.#unsent.stdout || frame.stderr > this.#unsent.stderr))
      throw new AppError('malformed', 'it acknowledges data that was not sent')
    this.#run.send(bytes)
    // Answers the renewal, so that the requester can tell a quiet run from a dead connection. If other frames wait, they serve as the
    // answer. Otherwise a peer that renews without reading would fill the memory.
    if (frame.type === 'lease_renew' && this.#queue.length === 0 && this.#stdinAcked !== null) {
      this.#send(execFrame.encode({ type: 'ack', request_id: this.#requestId, stdin: this.#stdinAcked, stdout: 0, stderr: 0 }))
    }
  }

  #start(frame: ExecFrame, bytes: Uint8Array): void {
    const { counters, executor, runs, traces } = this.#deps
    const { link, streamNonce } = this.#deps.channel
    const counted = ARRIVALS[frame.type]
    if (counted !== undefined) {
      counters.add(counted)
      if (counted === 'peer_runs') this.#traces = traces ?? null
      this.#traces?.arrived(this.#requestId, frame.type === 'detach_request')
      reach('received', this.#requestId)
      runs.opened(this.#name, this)
      this.#stdinAcked = 0
      this.#listen(executor.openRun(link.number, streamNonce, bytes))
    } else if (frame.type === 'resume') {
      this.#traces = traces ?? null
      traces?.resumed(this.#requestId)
      runs.resumed(this.#name, this)
      this.#unsent = { stdout: frame.stdout, stderr: frame.stderr }
      this.#listen(executor.resumeRun(link.number, streamNonce, bytes))
    } else throw new AppError('malformed', `the first frame is ${frame.type}, which cannot open a stream`)
  }

  #listen(run: PeerRunHandle): void {
    run.onFrame = (frame) => this.#send(frame)
    run.onClosed = () => this.#over()
    this.#run = run
  }

  #send(bytes: Uint8Array): void {
    if (this.#ended) return
    const frame = execFrame.decode(bytes)
    this.#record(frame)
    const isOutput = frame.type === 'stdout' || frame.type === 'stderr'
    this.#queue.push({ bytes, output: isOutput ? { type: frame.type, seq: frame.seq } : null })
    this.#queuedBytes += costOf(bytes)
    this.#flush()
  }

  #record(frame: ExecFrame): void {
    const first = !this.#answered
    this.#answered = true
    if (frame.type === 'ack') this.#stdinAcked = frame.stdin
    if (frame.type === 'detached' && !isOver(frame.state)) this.#traces?.outlives(this.#requestId)
    // A denied run has its Exit as its first frame.
    if (first && frame.type === 'exit' && isOfUnlisted(execExit.decode(frame.body).denial_reason))
      this.#deps.onUnlistedDenied(this.#deps.channel.link)
  }

  /** The executor has finished the run. Sends the remaining frames, then closes the channel. */
  #over(): void {
    this.#finished = true
    if (!this.#isLost && !this.#isElsewhere) this.#traces?.left(this.#requestId)
    this.#flush()
    if (this.#queue.length > 0) this.#deps.runs.unread.add(this.#deps.channel.link.agentId, this)
  }

  #flush(): void {
    if (this.#sending) return
    this.#sending = true
    // After a failed send, the channel is of no use.
    this.#sendAll().catch(() => this.#deps.channel.abort())
  }

  async #sendAll(): Promise<void> {
    for (let answer = this.#queue.shift(); answer !== undefined; answer = this.#queue.shift()) {
      const { bytes, output } = answer
      this.#queuedBytes -= costOf(bytes)
      if (output !== null) this.#unsent[output.type] = output.seq + 1
      if (!this.#deps.channel.send(this.#requestId, EXEC_PREFIX, bytes)) await this.#deps.channel.drained()
    }
    this.#sending = false
    if (!this.#finished || this.#ended) return
    this.#end()
    await this.#deps.channel.close()
  }
}

const costOf = (bytes: Uint8Array): number => bytes.length + FRAME_COST
