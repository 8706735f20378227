import type { Timer } from '../base/clock.ts'
import { errorText, isAppError } from '../base/errors.ts'
import { type Startable, type StartableEntry, startAll, stopAll } from '../base/startable.ts'
import type { DataPaths } from '../clients/paths.ts'
import type { DeskLink, LiveRunSource, WaitNotice } from '../desk/desk-link.ts'
import { DeskSocketLink } from '../desk/engine-client.ts'
import { type DeskCounts, openDesk } from '../desk/open-desk.ts'
import { loadOrCreateSeed, loadSeed } from '../identity/key-file.ts'
import type { AgentSigner } from '../identity/signing.ts'
import type { JournalComponents } from '../journal/journal.ts'
import type { ModeOverride } from '../protocol/desk/messages.ts'
import type { ApprovalRequest, SealedAnswer } from '../protocol/desk/approval-request.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'
import { ASK_TIMEOUT_MS, DESK_RETRY_MS } from '../protocol/limits/approvals.ts'
import { DataDirLock } from './lock.ts'

export interface DeskHostInit {
  readonly paths: DataPaths
  readonly dirMode: number
  readonly groupMayRead: boolean
  readonly signer: AgentSigner | null
  /** Name of this process's executor for the approval service. */
  readonly name: string
  /** Null for the default time of an approver. */
  readonly askTimeoutMs?: number
}

const lockOf = ({ deskLock: lock, deskPid: pid }: DataPaths): StartableEntry => ({
  name: 'lock of the approval service',
  startable: new DataDirLock({ lock, pid, apiSocket: null, what: 'the approval service of this data directory is run' }),
})

interface HostedDesk {
  readonly link: DeskLink
  readonly entries: readonly StartableEntry[]
  counts(): DeskCounts
}

/**
 * Starts the approval service of a data directory, in the process that gets its lock. Throws `conflict` if another process has it, and all
 * errors of the start.
 */
export const hostDesk = async (
  components: Omit<JournalComponents, 'signer'>,
  { paths, dirMode, groupMayRead, signer, name, askTimeoutMs = ASK_TIMEOUT_MS }: DeskHostInit,
): Promise<HostedDesk> => {
  const file = { path: paths.operatorKey, header: null, groupMayRead }
  await loadOrCreateSeed(file, dirMode)
  const operatorKey = async (): Promise<Uint8Array> => loadSeed(file)
  const desk = openDesk(components, { paths, operatorKey, askTimeoutMs, signer })
  const entries = [lockOf(paths), ...desk.entries]
  await startAll(entries)
  return { link: desk.link(name), entries, counts: () => desk.counts() }
}

/**
 * Gives a daemon its approval service: hosted in this process, or that of `x0x desk` until it ends. Failures to start are logged and
 * retried. Until then, runs that need an approval are denied.
 */
export class DeskHost implements Startable, DeskLink {
  readonly #components: Omit<JournalComponents, 'signer'>
  readonly #init: DeskHostInit
  readonly #elsewhere: DeskSocketLink
  #hosted: HostedDesk | null = null
  #answered: DeskLink
  #runs: LiveRunSource | null = null
  #timer: Timer | null = null
  #trying: Promise<void> = Promise.resolve()
  #problem: string | null = null
  #stopped = false

  constructor(components: Omit<JournalComponents, 'signer'>, init: DeskHostInit) {
    this.#components = components
    this.#init = init
    this.#elsewhere = new DeskSocketLink({ ...init.paths, name: init.name }, components.clock)
    this.#answered = this.#elsewhere
  }

  async start(): Promise<void> {
    this.#trying = this.#try()
    await this.#trying
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#timer?.cancel()
    await this.#trying
    this.#elsewhere.close()
    if (this.#hosted !== null) await stopAll(this.#hosted.entries)
    this.#hosted = null
  }

  async ask(request: ApprovalRequest, signal: AbortSignal, onPending: (waiting: WaitNotice) => void): Promise<SealedAnswer> {
    const link = this.#link
    const answer = await link.ask(request, signal, onPending)
    this.#answered = link
    return answer
  }

  event(event: LifecycleEvent): void {
    this.#link.event(event)
  }

  serve(runs: LiveRunSource): void {
    this.#runs = runs
    this.#elsewhere.serve(runs)
    this.#hosted?.link.serve(runs)
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    return this.#link.override(session, agent)
  }

  approvalKey(): Uint8Array {
    return this.#answered.approvalKey()
  }

  /** Null if the service is not hosted in this process. */
  counts(): DeskCounts | null {
    return this.#hosted?.counts() ?? null
  }

  get #link(): DeskLink {
    return this.#hosted?.link ?? this.#elsewhere
  }

  async #try(): Promise<void> {
    const { clock, log } = this.#components
    try {
      this.#hosted = await hostDesk(this.#components, this.#init)
      if (this.#runs !== null) this.#hosted.link.serve(this.#runs)
      if (this.#problem !== null) log.warn({}, 'this daemon runs the approval service')
    } catch (error) {
      const problem = errorText(error)
      const elsewhere = isAppError(error, 'conflict')
      if (problem !== this.#problem)
        log[elsewhere ? 'warn' : 'error']({ problem }, 'another program runs the approval service; it receives the approval requests')
      this.#problem = problem
      if (!this.#stopped) this.#timer = clock.setTimeout(() => void (this.#trying = this.#try()), DESK_RETRY_MS, { unref: true })
    }
  }
}
