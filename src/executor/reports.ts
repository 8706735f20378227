import type { Journal } from '../audit/journal.ts'
import type { JournalEvent } from '../audit/events.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { reach } from '../base/stages.ts'
import type { ExecCounters } from '../diagnostics/exec-counters.ts'
import type { Permit } from '../policy/permit.ts'
import { shortId } from '../protocol/ids.ts'
import type { Containment, DenialReason, WarningKind } from '../protocol/reasons.ts'
import { neverRan, type ExitFacts, type ExitWriter, type RunSubject } from './exit-writer.ts'

export interface ReportsComponents {
  /** Null where exec is off and no file was named: then nothing can run either. */
  readonly journal: Journal | null
  readonly counters: ExecCounters
  readonly exits: ExitWriter
  readonly log: Logger
}

/** What is said of a run, in the right places and the right order: journal, counters, log, and the signed Exit. */
export class Reports {
  readonly #journal: Journal | null
  readonly #counters: ExecCounters
  readonly #exits: ExitWriter
  readonly #log: Logger

  constructor(components: ReportsComponents) {
    this.#journal = components.journal
    this.#counters = components.counters
    this.#exits = components.exits
    this.#log = components.log
  }

  /** True when the line is on disk, so that the program may be started. */
  async requested(subject: RunSubject, permit: Permit, stdinBytes: number): Promise<boolean> {
    const { request_id } = subject.key
    reach('permitted', request_id)
    const { matched_acl, caps } = permit
    const facts = { argv: subject.argv, matched_acl, stdin_bytes: stdinBytes, timeout_ms: caps.timeout_ms }
    const recorded = await this.#record({ event: 'request', ...subject.key, ...facts })
    reach('journalled', request_id)
    return recorded
  }

  started(subject: RunSubject, { pid, containment }: { pid: number; containment: Containment }): void {
    reach('spawned', subject.key.request_id)
    this.#counters.sessionStarted(subject.key.agent_id)
    void this.#record({ event: 'started', ...subject.key, pid, containment })
  }

  /** `bytes`: the stream's total, null where the warning is not about a stream. */
  warned(subject: RunSubject, kind: WarningKind, bytes: number | null): void {
    const { key, argv } = subject
    this.#counters.warned({ kind, agent_id: key.agent_id, request_id: key.request_id, argv, bytes })
    void this.#record({ event: 'warning', ...key, kind, bytes })
  }

  /** Answers the encoded Exit, when the line is on disk as far as the disk allows. `detail` stays on this host. */
  async denied(subject: RunSubject, reason: DenialReason, detail: string | null): Promise<Uint8Array> {
    this.#counters.denied(reason)
    const { key, argv } = subject
    this.#log.info({ agent: shortId(key.agent_id), request_id: key.request_id, reason, detail }, 'a request was denied')
    const [frame] = await Promise.all([
      this.#exits.write(subject, neverRan(reason)),
      this.#record({ event: 'denial', ...key, argv, reason, detail }),
    ])
    return frame
  }

  /** Answers the encoded Exit, when the line is on disk as far as the disk allows: the outcome is told in any case. */
  async ended(subject: RunSubject, facts: ExitFacts): Promise<Uint8Array> {
    reach('ended', subject.key.request_id)
    const { code, signal, duration_ms, stdout_bytes_total, stderr_bytes_total, truncated } = facts
    const line = { code, signal, duration_ms, stdout_bytes: stdout_bytes_total, stderr_bytes: stderr_bytes_total, truncated }
    const [frame] = await Promise.all([this.#exits.write(subject, facts), this.#record({ event: 'exit', ...subject.key, ...line })])
    reach('exit_signed', subject.key.request_id)
    return frame
  }

  /** Every failure is counted, unless there is no journal by intent. */
  async #record(event: JournalEvent): Promise<boolean> {
    if (this.#journal === null) return false
    try {
      await this.#journal.append(event)
      return true
    } catch (error) {
      this.#counters.count('audit_write_failures')
      this.#log.error({ event: event.event, error: errorText(error) }, 'a line of the journal could not be written')
      return false
    }
  }
}
