import type { Readable } from 'node:stream'
import type { Clock } from '../../../base/clock.ts'
import { errorText, isAppError } from '../../../base/errors.ts'
import { FileApi, type OnFileWaiting } from '../../../clients/file-api.ts'
import type { LocalApi } from '../../../clients/daemon.ts'
import { type FanoutHost, hostOfError } from '../../../exec/fleet/host-end.ts'
import { type FanoutHostJson, NO_FACTS } from '../../../protocol/api/fanout.ts'
import { denialText } from '../../../protocol/denial-text.ts'
import type { DenialReason } from '../../../protocol/reasons.ts'
import { type CopyFailure, type CopyJob, type CopyOptions, copyJobs } from './copy-job.ts'
import { copySummary } from './copy-progress.ts'
import { type FailureKind, failureKindOf, fileDenialOf, fileFailureLines } from './file-failure.ts'
import type { UploadOrder } from './places.ts'
import { UploadPlan } from './upload-plan.ts'

export interface HostCopyInit extends CopyOptions {
  readonly host: FanoutHost
  readonly requestId: string
  readonly order: Pick<UploadOrder, 'sources' | 'destination'>
}

interface HostCopyComponents {
  readonly api: LocalApi
  readonly clock: Pick<Clock, 'monotonic'>
  readonly stdin: () => Readable
  /** Receives each line about this host. */
  line(text: string): void
  readonly onWaiting: OnFileWaiting
}

/** Copies the files of a fan-out to one host. */
export class HostCopy {
  /** What the copy did, for a terminal. Null before its end. */
  summary: string | null = null
  readonly #components: HostCopyComponents
  readonly #init: HostCopyInit
  readonly #failures = new Map<FailureKind, unknown>()
  #files = 0
  #copied = 0
  #bytes = 0
  /** Whether content may have been sent. */
  #sent = false

  constructor(components: HostCopyComponents, init: HostCopyInit) {
    this.#components = components
    this.#init = init
  }

  /** Resolves with the result and never rejects. */
  async run(signal: AbortSignal): Promise<FanoutHostJson> {
    const { clock } = this.#components
    const began = clock.monotonic()
    try {
      await this.#copy(signal)
    } catch (error) {
      const { host, order } = this.#init
      const place = `${host.host}:${order.destination.path}`
      if (!signal.aborted) this.#fail({ source: place, destination: place, error })
    }
    const ms = clock.monotonic() - began
    this.summary = copySummary({ copied: this.#copied, files: this.#files, bytes: this.#bytes, ms })
    return { ...this.#end(signal), duration_ms: Math.round(ms) }
  }

  async #copy(signal: AbortSignal): Promise<void> {
    const { api, stdin, line, onWaiting } = this.#components
    const { host, order, recursive, preserve } = this.#init
    // A name may change meanwhile.
    const files = new FileApi({ api, onWaiting }, { agent: host.agent_id })
    const options = { recursive, preserve, agentId: host.agent_id }
    const plan = await new UploadPlan({ files, stdin }, { ...order, host: host.host }, options).make(signal)
    this.#files = plan.jobs.length + plan.failures.length
    for (const text of plan.skipped) line(text)
    for (const failure of plan.failures) this.#fail(failure)
    await copyJobs(plan.jobs, {
      copyOne: async (job) => this.#copyOne(job, signal),
      isOver: () => signal.aborted || this.#failures.has('not_connected'),
    })
  }

  async #copyOne(job: CopyJob, signal: AbortSignal): Promise<void> {
    this.#sent = true
    const moved = (bytes: number): void => void (this.#bytes += bytes)
    try {
      await job.run({ skipped: () => undefined, moved }, signal)
      this.#copied += 1
    } catch (error) {
      const { source, destination } = job
      if (!signal.aborted) this.#fail({ source, destination, error })
    }
  }

  /** A lost connection is reported by the result of the host. A denial is too, if it is all that happened. */
  #fail({ source, destination, error }: CopyFailure): void {
    const kind = failureKindOf(error)
    if (!this.#failures.has(kind)) this.#failures.set(kind, error)
    const { host } = this.#init.host
    if (kind === 'file') for (const text of fileFailureLines(host, [source, destination], error)) this.#components.line(text)
    if (kind === 'denied') this.#components.line(`${source}: denied (${fileDenialOf(error)})`)
  }

  #end(signal: AbortSignal): FanoutHostJson {
    const { host, requestId } = this.#init
    const facts = { ...NO_FACTS, ...host, request_id: requestId }
    const lost = this.#failures.get('not_connected')
    if (lost !== undefined) return hostOfError(host, requestId, lost, this.#sent)
    if (signal.aborted && this.#copied + this.#failures.size < Math.max(1, this.#files)) return { ...facts, end: 'cancelled' }
    const denial = this.#failures.get('denied')
    const reason = fileDenialOf(denial)
    if (reason !== null && this.#copied === 0 && !this.#failures.has('file')) return { ...facts, ...this.#denied(denial, reason) }
    return { ...facts, end: 'ran', code: this.#failures.size === 0 ? 0 : 1 }
  }

  #denied(error: unknown, reason: DenialReason): Pick<FanoutHostJson, 'end' | 'denial_reason' | 'message' | 'next'> {
    const said = isAppError(error) ? error.data['argv'] : null
    const argv = Array.isArray(said) ? said.map(String) : []
    const next = denialText(reason, { host: this.#init.host.host, argv }).next.join('\n')
    return { end: 'denied', denial_reason: reason, message: errorText(error), next }
  }
}
