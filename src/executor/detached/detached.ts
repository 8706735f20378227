import { hasShare } from '../../base/bounded-collections.ts'
import { errorText } from '../../base/errors.ts'
import { RateLimit } from '../../base/rate-limit.ts'
import { reach } from '../../base/run-stages.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import type { ForgetEvent } from '../../journal/events.ts'
import type { RunKey } from '../../journal/run-key.ts'
import type { ApprovalNeeded, Permitted } from '../../policy/mesh/authorize.ts'
import type { AgentId } from '../../protocol/ids.ts'
import {
  DETACHED_ASKS,
  DETACHED_CANCELS,
  LEAST_ATTACHED_PER_AGENT,
  MAX_ATTACHED,
  MAX_ATTACHED_PER_AGENT,
  MAX_ATTACHED_PER_RUN,
} from '../../protocol/limits/detached.ts'
import { NONCE_BYTES } from '../../protocol/limits/wire.ts'
import { type ExecDetachRequest, type ExecDetachedAsk, execDetachRequest } from '../../protocol/wire/detached.ts'
import { type ExecFrame, execFrame } from '../../protocol/wire/exec.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { PeerStreamWriter } from '../runs/frames.ts'
import type { UnackedTotal } from '../runs/outbox.ts'
import type { AnsweredStream, Carried } from '../runs/peer-approvals.ts'
import type { PeerRun } from '../runs/peer-run.ts'
import type { Reports, RunSubject } from '../runs/reports.ts'
import type { ExecutorServices } from '../services.ts'
import { Attachment } from './attachment.ts'
import type { DetachedRecord } from './record-file.ts'
import type { DetachedRunRecord } from './record.ts'
import { keptBefore } from './spool.ts'
import { DetachedRunStore, keptName } from './store.ts'

const NO_NONCE = new Uint8Array(NONCE_BYTES)
const NO_HASH = new Uint8Array(32)

/** SHA-256 of a Request without its nonce and time. An equal hash on another stream means the same run. */
const contentOf = (request: ExecDetachRequest): Uint8Array =>
  sha256(execDetachRequest.encode({ ...request, stream_nonce: NO_NONCE, created_at_ms: 0 }))

export const isSameRun = ({ record }: DetachedRunRecord, request: ExecDetachRequest): boolean =>
  equalBytes(record.content_sha256, contentOf(request))

type DetachedDeps = Pick<ExecutorServices, 'clock' | 'counters' | 'log'> & { readonly reports: Reports; readonly total: UnackedTotal }

/** A verified request of an accepted agent about a detached run. */
export interface DetachedAttachRequest {
  readonly subject: RunSubject
  readonly request: ExecDetachedAsk
  readonly link: PeerLink
  readonly outlet: PeerStreamWriter
}

interface Attached {
  readonly kept: DetachedRunRecord
  readonly agentId: AgentId
}

/** Runs that outlive their requesters. Only the owner of a run learns that it exists. */
export class Detached {
  readonly #deps: DetachedDeps
  readonly #runs: DetachedRunStore
  /** Runs that are running or waiting for an approval. */
  readonly #going = new Map<DetachedRunRecord, PeerRun>()
  readonly #attached = new Set<Attached>()
  readonly #cancels: RateLimit
  /** Limits requests other than cancels. */
  readonly #asks: RateLimit

  constructor(deps: DetachedDeps, init: { readonly dataDir: string }) {
    this.#deps = deps
    const { clock, log, reports } = deps
    this.#cancels = new RateLimit(deps, DETACHED_CANCELS)
    this.#asks = new RateLimit(deps, DETACHED_ASKS)
    const forgotten = async (record: DetachedRecord): Promise<boolean> => !reports.hasJournal || this.#forgotten(record, 'time')
    const neverBegan = async (record: DetachedRecord): Promise<Uint8Array> => {
      const subject = { key: keyOf(record), argv: [], requestSha256: record.request_sha256 }
      return reports.denied(subject, 'approval_denied', 'the daemon stopped while it waited for an approval, and it never began')
    }
    this.#runs = new DetachedRunStore({ clock, log, forgotten, neverBegan }, init)
  }

  async load(): Promise<void> {
    await this.#runs.load()
  }

  stop(): void {
    this.#runs.stop()
  }

  find(link: PeerLink, requestId: string): DetachedRunRecord | null {
    return this.#runs.find(keptName(link.agentId, link.machineId, requestId))
  }

  /** Admits a run that is permitted or needs an approval. A text says why it has no room. */
  admit(
    { key, requestSha256 }: RunSubject,
    request: ExecDetachRequest,
    { kind, place }: Permitted | ApprovalNeeded,
  ): DetachedRunRecord | string {
    const { agent_id, machine_id, request_id } = key
    const cap = place.entry.detaching?.max_output_bytes ?? 0
    const keep_bytes = Math.min(request.keep_bytes ?? cap, cap)
    const content_sha256 = contentOf(request)
    return this.#runs.admit({ agent_id, machine_id, request_id, content_sha256, request_sha256: requestSha256, keep_bytes }, kind === 'ask')
  }

  /** Drops a run that was admitted but has not started. */
  release(kept: DetachedRunRecord): void {
    this.#runs.release(kept)
  }

  /** Runs the program to its end. The requester, and every repetition of its Request, is answered when the run has started, waits for an approval, or was denied. */
  async execute(run: PeerRun, kept: DetachedRunRecord, outlet: PeerStreamWriter): Promise<void> {
    this.#deps.counters.count('runs_detached')
    this.#going.set(kept, run)
    const sent = this.#sendStarted(kept, outlet)
    await run.execute()
    this.#going.delete(kept)
    await sent
    reach('over', run.requestId)
  }

  /** Answers a repeated Request with the state of its run. */
  answer(kept: DetachedRunRecord, outlet: PeerStreamWriter): AnsweredStream {
    return { stream: waiterOn(outlet), answered: this.#sendStarted(kept, outlet) }
  }

  /** The stream of a Request that waits for the start of its run. */
  streamOf(outlet: PeerStreamWriter): Carried {
    return waiterOn(outlet)
  }

  /** Takes one request of this agent from its rate limit. */
  mayAsk(agentId: AgentId, { ask }: Pick<ExecDetachedAsk, 'ask'>): boolean {
    return (ask === 'cancel' ? this.#cancels : this.#asks).allows(agentId)
  }

  ask(asked: DetachedAttachRequest): AnsweredStream {
    const { link, request } = asked
    const kept = this.find(link, request.request_id)
    if (kept === null || kept.record.state === 'expired') {
      this.#deps.counters.count('detached_unknown')
      return this.#once(asked, async () => frameOf(kept, request.request_id))
    }
    if (request.ask === 'attach') return this.#attach(asked, kept)
    return this.#once(asked, async () => this.#do(asked, kept))
  }

  /** Answers with a single frame. */
  #once({ outlet, request }: DetachedAttachRequest, answer: () => Promise<Uint8Array>): AnsweredStream {
    const answered = answer()
      .then((frame) => outlet.send(frame))
      .catch((error: unknown) => {
        const { request_id } = request
        this.#deps.log.error({ request_id, error: errorText(error) }, 'a query about a detached run could not be answered')
      })
    return { stream: waiterOn(outlet), answered: answered.finally(() => outlet.close()) }
  }

  async #do({ request, subject }: DetachedAttachRequest, kept: DetachedRunRecord): Promise<Uint8Array> {
    await kept.measured()
    if (request.ask === 'cancel') this.#going.get(kept)?.end('cancelled')
    if (request.ask === 'forget' && kept.over) {
      if (!(await this.#forgotten(kept.record, 'requester')))
        return this.#deps.reports.denied(subject, 'audit_unavailable', 'it asked to forget a detached run')
      await this.#runs.expire(kept)
    }
    return frameOf(kept, request.request_id)
  }

  #attach(asked: DetachedAttachRequest, kept: DetachedRunRecord): AnsweredStream {
    const { subject, request, link, outlet } = asked
    const { reports } = this.#deps
    const place: Attached = { kept, agentId: link.agentId }
    // A reader that wants only the end opens no file, so it is admitted even if no place is free.
    const isAtEnd = kept.record.state === 'ended' && request.from >= keptBefore(kept.written)
    if (!isAtEnd && !this.#hasRoom(place))
      return this.#once(asked, async () =>
        reports.denied(subject, 'concurrency_limit_reached', 'too many clients are attached to detached runs'),
      )
    this.#attached.add(place)
    const attachment = new Attachment(this.#deps, { kept, outlet, from: request.from })
    const answered = async (): Promise<void> => {
      try {
        const { key } = subject
        const recorded = await reports.record(key, async (journal) => journal.append({ event: 'attach', ...key, from: request.from }))
        if (recorded) return await attachment.run()
        outlet.send(await reports.denied(subject, 'audit_unavailable', 'it asked for the output of a detached run'))
        outlet.close()
      } finally {
        this.#attached.delete(place)
      }
    }
    this.#deps.counters.count('runs_attached')
    return { stream: attachment, answered: answered() }
  }

  #hasRoom({ kept, agentId }: Attached): boolean {
    const all = [...this.#attached]
    const own = all.filter((one) => one.agentId === agentId)
    return (
      own.filter((one) => one.kept === kept).length < MAX_ATTACHED_PER_RUN &&
      own.length < MAX_ATTACHED_PER_AGENT &&
      hasShare(own.length, all.length, MAX_ATTACHED, { least: LEAST_ATTACHED_PER_AGENT })
    )
  }

  async #sendStarted(kept: DetachedRunRecord, outlet: PeerStreamWriter): Promise<void> {
    await kept.begun
    outlet.send(kept.refused ?? execFrame.encode(kept.frame()))
    outlet.close()
  }

  async #forgotten(record: DetachedRecord, by: ForgetEvent['by']): Promise<boolean> {
    const key = keyOf(record)
    return this.#deps.reports.record(key, async (journal) => journal.append({ event: 'forget', ...key, by }))
  }
}

const keyOf = ({ agent_id, machine_id, request_id }: DetachedRecord): RunKey => ({ agent_id, machine_id, request_id })

/** An unknown run and a run of another agent look alike, so that a requester cannot probe request IDs. */
const frameOf = (kept: DetachedRunRecord | null, request_id: string): Uint8Array => {
  const nothing = { kept: 0, dropped: 0, keep_bytes: 0, lifetime_left_ms: null, kept_for_ms: null, stdout_before: 0, stderr_before: 0 }
  const unknown: ExecFrame = { type: 'detached', request_id, state: 'unknown', request_sha256: NO_HASH, ...nothing }
  return execFrame.encode(kept === null ? unknown : kept.frame())
}

/** A stream whose peer sends no more frames. */
const waiterOn = (outlet: PeerStreamWriter): AnsweredStream['stream'] => {
  const close = (): void => outlet.close()
  return { receive: () => undefined, end: () => undefined, lost: close, over: close, violated: close, kill: close }
}
