import { type Evictable, RetentionPool } from '../base/bounded-collections.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { reach } from '../base/run-stages.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { PeerRunHandle } from '../executor-api/peer-run.ts'
import { isOver } from '../protocol/api/detached-run.ts'
import { type RequestId, shortId } from '../protocol/ids.ts'
import { FRAME_COST } from '../protocol/limits/wire.ts'
import { isOfUnlisted } from '../protocol/reasons.ts'
import { EXEC_PREFIX, type ExecFrame, decodeExecBody, execExit, execFrame } from '../protocol/wire/exec.ts'
import type { RequesterCounter, RequesterCounters } from './counters.ts'
import { type RunTraces, contextOf } from './run-traces.ts'
import type { RunChannel } from './transport.ts'

/**
 * Runs of peers that are over, executor and all, and of which something waits in the network's half for a peer that does not
 * read. One who reads ten of the longest answers at his leisure loses none of them.
 */
export const UNREAD = {
  count: 4_096,
  bytes: 64 * 1024 * 1024,
  countPerOwner: 256,
} as const

/** Frames that open something, and what is counted then. */
const ARRIVALS: Partial<Record<ExecFrame['type'], RequesterCounter>> = {
  request: 'peer_runs',
  detach_request: 'peer_runs',
  detached_ask: 'peer_detached_asked',
  rules_request: 'peer_rules_asked',
  approval_request: 'peer_approvals_asked',
}

type BodyHandler = (channel: RunChannel, requestId: RequestId, body: Uint8Array) => void

export type PeerTraces = Pick<RunTraces, 'arrived' | 'joined' | 'left' | 'lost' | 'outlives' | 'resumed'>

export interface ExecServiceComponents {
  readonly executor: Pick<ExecutorClient, 'openRun' | 'resumeRun'>
  readonly counters: RequesterCounters
  readonly log: Logger
  /** Absent or null: no traces are kept. */
  readonly traces?: PeerTraces | null
  /** The executor has denied a request of an agent that the trust rules do not accept. */
  onStrangerDenied(peer: RunChannel['link']): void
}

/** Answers peers: carries their signed bytes to the executor and its frames back. It decides nothing. */
export class ExecService {
  readonly #components: ExecServiceComponents
  readonly #runs = new PeerRuns()

  constructor(components: ExecServiceComponents) {
    this.#components = components
  }

  /** The first exec body of an incoming channel: from here on the channel is the run's. */
  readonly onBody: BodyHandler = (channel, requestId, body) => {
    const run = new PeerRunRelay({ ...this.#components, channel, runs: this.#runs }, { requestId })
    channel.onBody = (id, next) => run.receive(id, next)
    channel.onClosed = (error) => run.closed(error)
    run.receive(requestId, body)
  }

  /** Takes exec's bodies before any generic fan-out. */
  register(dispatcher: { route(prefix: Uint8Array, handler: BodyHandler): void }): void {
    dispatcher.route(EXEC_PREFIX, this.onBody)
  }
}

/** The present `PeerRunRelay` of each run, by its name: peer and request id. */
class PeerRuns {
  readonly #runs = new Map<string, PeerRunRelay>()
  /** Runs that the executor has closed, with frames that their peers have not read yet. */
  readonly unread = new RetentionPool(UNREAD)

  /** Enters a run that was opened. If its name is taken the first keeps it: the executor refuses the second. */
  opened(name: string, run: PeerRunRelay): void {
    if (!this.#runs.has(name)) this.#runs.set(name, run)
  }

  /** The peer resumes its run on another channel: replaces the run on the old one, whose frames are not needed any more. */
  resumed(name: string, run: PeerRunRelay): void {
    this.#runs.get(name)?.replaced()
    this.#runs.set(name, run)
  }

  /** Another channel has the run of this name. */
  elsewhere(name: string, run: PeerRunRelay): boolean {
    return (this.#runs.get(name) ?? run) !== run
  }

  ended(name: string, run: PeerRunRelay): void {
    if (this.#runs.get(name) === run) this.#runs.delete(name)
    this.unread.delete(run)
  }
}

interface PeerRunComponents extends ExecServiceComponents {
  readonly channel: RunChannel
  readonly runs: PeerRuns
}

/** A frame of the executor; for output, with the sequence number that the peer may acknowledge once it is sent. */
interface Answer {
  readonly bytes: Uint8Array
  readonly output: { readonly type: 'stdout' | 'stderr'; readonly seq: number } | null
}

/** One run of a peer, on one channel. */
class PeerRunRelay implements Evictable {
  readonly #components: PeerRunComponents
  readonly #channel: RunChannel
  readonly #requestId: RequestId
  #run: PeerRunHandle | null = null
  /** The executor's frames that wait for a slow peer. The run's window bounds them while the run lives, `UNREAD` afterwards. */
  readonly #queue: Answer[] = []
  #queuedBytes = 0
  /** Sequence numbers of the first frames of output that were not sent to the peer. */
  #unsent: { stdout: number; stderr: number } = { stdout: 0, stderr: 0 }
  #sending = false
  #ended = false
  #finished = false
  /** Its stream was lost; the run may be resumed on another. */
  #isLost = false
  /** The last number of stdin that the executor acknowledged; null while it is not known. */
  #stdinAcked: number | null = null
  #answered = false
  /** Null: none are kept, or this stream asks something that is no run. */
  #traces: PeerTraces | null = null

  constructor(components: PeerRunComponents, init: { requestId: RequestId }) {
    this.#components = components
    this.#channel = components.channel
    this.#requestId = init.requestId
  }

  /** Unique: only this peer can have a run of this name. */
  get #name(): string {
    const { agentId, machineId } = this.#channel.link
    return `${agentId}:${machineId}:${this.#requestId}`
  }

  get #isElsewhere(): boolean {
    return this.#components.runs.elsewhere(this.#name, this)
  }

  get retainedBytes(): number {
    return this.#queuedBytes
  }

  /** Drops what waits for the peer. A peer that resumes the run afterwards is answered Gone. */
  evict(): void {
    this.#leave(() => undefined)
    this.#channel.abort()
  }

  receive(requestId: RequestId, body: Uint8Array): void {
    if (this.#ended) return
    try {
      if (requestId !== this.#requestId) throw new AppError('malformed', 'a message of another request')
      const frame = decodeExecBody(body)
      if (frame.type === 'trace' && this.#run !== null) this.#traces?.joined(requestId, contextOf(frame))
      else this.#take(frame, body.subarray(EXEC_PREFIX.length))
    } catch (error) {
      this.#components.counters.add('peer_malformed')
      this.#components.log.warn(
        { agent: shortId(this.#channel.link.agentId), request_id: this.#requestId },
        `a run's stream ended: ${errorText(error)}`,
      )
      this.#leave((port) => port.over())
      this.#channel.abort()
    }
  }

  /** The channel has ended. In peace, or for a malformed frame, the run is over for this peer; otherwise it may resume it. */
  closed(error: Error | null): void {
    this.#isLost = error !== null && !isAppError(error, 'malformed')
    // Before the executor has answered: it may be resumed sooner.
    if (this.#isLost && this.#run !== null && !this.#finished && !this.#isElsewhere) this.#traces?.lost(this.#requestId)
    this.#leave((port) => (this.#isLost ? port.lost() : port.over()))
  }

  replaced(): void {
    this.#leave((port) => port.lost())
    this.#channel.abort()
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
    this.#components.runs.ended(this.#name, this)
  }

  #take(frame: ExecFrame, bytes: Uint8Array): void {
    if (this.#run === null) {
      this.#start(frame, bytes)
      return
    }
    // An ack of frames that are still in `#queue` would open the window, and the queue could grow to all of the output.
    if (frame.type === 'ack' && (frame.stdout > this.#unsent.stdout || frame.stderr > this.#unsent.stderr))
      throw new AppError('malformed', 'it acknowledges what it was not sent')
    this.#run.send(bytes)
    // Answered, so that the requester can tell a quiet run from a dead connection. Not where other frames wait, which
    // answer as well: a peer that renews and does not read must not fill our memory.
    if (frame.type === 'lease_renew' && this.#queue.length === 0 && this.#stdinAcked !== null) {
      this.#send(execFrame.encode({ type: 'ack', request_id: this.#requestId, stdin: this.#stdinAcked, stdout: 0, stderr: 0 }))
    }
  }

  #start(frame: ExecFrame, bytes: Uint8Array): void {
    const { counters, executor, runs, traces } = this.#components
    const { link, streamNonce } = this.#channel
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
    } else throw new AppError('malformed', `the first frame is a ${frame.type}, which opens nothing`)
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
    // A denied run is answered with its Exit first.
    if (first && frame.type === 'exit' && isOfUnlisted(execExit.decode(frame.body).denial_reason))
      this.#components.onStrangerDenied(this.#channel.link)
  }

  /** The executor has closed the run: sends what waits, then closes the channel. */
  #over(): void {
    this.#finished = true
    if (!this.#isLost && !this.#isElsewhere) this.#traces?.left(this.#requestId)
    this.#flush()
    if (this.#queue.length > 0) this.#components.runs.unread.add(this.#channel.link.agentId, this)
  }

  #flush(): void {
    if (this.#sending) return
    this.#sending = true
    // A channel on which sending failed is of no more use to the peer.
    this.#sendAll().catch(() => this.#channel.abort())
  }

  async #sendAll(): Promise<void> {
    for (let answer = this.#queue.shift(); answer !== undefined; answer = this.#queue.shift()) {
      const { bytes, output } = answer
      this.#queuedBytes -= costOf(bytes)
      if (output !== null) this.#unsent[output.type] = output.seq + 1
      if (!this.#channel.send(this.#requestId, EXEC_PREFIX, bytes)) await this.#channel.drained()
    }
    this.#sending = false
    if (!this.#finished || this.#ended) return
    this.#end()
    await this.#channel.close()
  }
}

const costOf = (bytes: Uint8Array): number => bytes.length + FRAME_COST
