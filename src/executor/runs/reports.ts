import { errorText } from '../../base/errors.ts'
import { reach } from '../../base/run-stages.ts'
import type { Journal } from '../../journal/journal.ts'
import { type LastBegun, lastBegun } from '../../journal/past-runs.ts'
import type { RunKey } from '../../journal/run-key.ts'
import type { TellableRules } from '../../policy/mesh/tellable-rules.ts'
import type { FileRunPermit } from '../../policy/mesh/authorize-file.ts'
import type { Permit } from '../../policy/permit.ts'
import type { ProgramStart } from '../../process/spawn.ts'
import { shortId, toHex } from '../../protocol/ids.ts'
import { MAX_RECENT_RUNS } from '../../protocol/limits/wire.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import { EXEC_EXIT_DOMAIN, EXEC_RULES_DOMAIN, type ExecRequest, execDetachRules, execExit, execFrame } from '../../protocol/wire/exec.ts'
import type { RecordingEnd } from '../../transcripts/recording.ts'
import type { OwnIds } from '../links/trust-evaluator.ts'
import type { ExecutorServices } from '../services.ts'
import type { RunRecorder } from './execution.ts'
import { amountsOf } from './frames.ts'
import { type ExitFacts, endOf, evidenceOf, neverRan } from './run-facts.ts'

/** The verified requester of a request, and the request. */
export interface RunSubject {
  readonly key: RunKey
  readonly argv: readonly string[]
  readonly requestSha256: Uint8Array
}

export type ReportsDeps = Pick<ExecutorServices, 'counters' | 'journal' | 'log' | 'signatures'>

/** Records everything about runs of other agents. */
export class Reports {
  /** Called when a run is denied before a process began. */
  onNeverBegan: (key: RunKey) => void = () => undefined
  readonly #deps: ReportsDeps
  readonly #own: OwnIds

  constructor(deps: ReportsDeps, own: OwnIds) {
    this.#deps = deps
    this.#own = own
  }

  /** False if the ACL names no audit log. */
  get hasJournal(): boolean {
    return this.#deps.journal !== null
  }

  /** The last runs that began on this machine, also before this start. An unreadable audit log does not prevent the start, and tells nothing. */
  async lastBegun(): Promise<LastBegun> {
    const { journal, log } = this.#deps
    try {
      return journal === null ? { runs: [], since: Number.NaN } : await lastBegun(journal.path, MAX_RECENT_RUNS)
    } catch (error) {
      log.error({ error: errorText(error) }, 'cannot read which runs began before this start: their request IDs may run again')
      return { runs: [], since: Number.NaN }
    }
  }

  /** `approvedBy` is null if no approval was needed. */
  of(
    subject: RunSubject,
    permit: Permit | FileRunPermit,
    stdin: ExecRequest['stdin'],
    approvedBy: string | null = null,
  ): RunRecorder<ProgramStart, Uint8Array> {
    const { counters } = this.#deps
    const { key, argv } = subject
    return {
      requested: async (recording) => this.#requested(subject, permit, stdin, { approvedBy, recording }),
      allowed: () => counters.count('requests_allowed'),
      // A file command starts no program.
      started: (process) => ('command' in permit ? counters.sessionStarted(key.agent_id) : this.#started(subject, process)),
      warned: (warning) => {
        const facts = { kind: warning.kind, ...amountsOf(warning) }
        counters.warned({ ...facts, agent_id: key.agent_id, request_id: key.request_id, argv })
        void this.record(key, async (journal) => journal.append({ event: 'warning', ...key, ...facts }))
      },
      denied: async (reason, detail, ran = null) => {
        if (ran === null) return this.neverBegan(subject, reason, detail)
        void this.record(key, async (journal) => journal.append({ event: 'started', ...key, ...ran }))
        return this.denied(subject, reason, detail)
      },
      ended: async (facts, recording) => this.#ended(subject, facts, recording),
      settled: (how) => counters.sessionEnded(key.agent_id, how),
    }
  }

  /** Like `denied`, for an admitted run of which no process began. */
  async neverBegan(subject: RunSubject, reason: DenialReason, detail: string | null): Promise<Uint8Array> {
    this.onNeverBegan(subject.key)
    return this.denied(subject, reason, detail)
  }

  /** Resolves to the encoded Exit when the line is on disk, as far as the disk allows. `detail` stays on this machine. */
  async denied(subject: RunSubject, reason: DenialReason, detail: string | null): Promise<Uint8Array> {
    const { counters, log } = this.#deps
    counters.denied(reason)
    const { key, argv } = subject
    log.info({ agent: shortId(key.agent_id), request_id: key.request_id, reason, detail }, 'a request was denied')
    const [frame] = await Promise.all([
      this.#exit(subject, neverRan(reason)),
      this.record(key, async (journal) => journal.refuse({ event: 'denial', ...key, argv, reason, detail })),
    ])
    return frame
  }

  /** Resolves to the encoded Rules when the line is on disk or counted, or to an encoded Exit if the audit log cannot be written. */
  async answerRules(subject: RunSubject, { rules, left_out }: TellableRules): Promise<Uint8Array> {
    const { counters, journal, signatures } = this.#deps
    const { key, requestSha256 } = subject
    const event = { event: 'rules', ...key, listed: rules.length, left_out, detail: null } as const
    // Without an audit log no run can start, so no rules are revealed.
    if (journal !== null && !((await this.record(key, async () => journal.refuse(event))) && (await journal.status()).writable))
      return this.denied(subject, 'audit_unavailable', 'it asked which commands it may run')
    counters.count('rules_answered')
    const answer = { ...this.#from(subject), request_sha256: requestSha256, rules: [...rules], left_out }
    const body = execDetachRules.encode(answer)
    return execFrame.encode({ type: 'rules', body, signature: await signatures.sign(EXEC_RULES_DOMAIN, body) })
  }

  async #requested(
    { key, argv, requestSha256 }: RunSubject,
    permit: Permit | FileRunPermit,
    stdin: ExecRequest['stdin'],
    { approvedBy, recording }: { readonly approvedBy: string | null; readonly recording: string | undefined },
  ): Promise<boolean> {
    reach('permitted', key.request_id)
    const { keep_bytes } = permit.caps
    const facts = { argv, stdin_bytes: stdin?.len ?? 0, request_sha256: toHex(requestSha256), ...evidenceOf(permit, stdin?.pieces ?? []) }
    const recorded = await this.record(key, async (journal) =>
      journal.append({
        event: 'request',
        ...key,
        ...facts,
        ...(approvedBy !== null && { approved_by: approvedBy }),
        ...(keep_bytes !== null && { keep_bytes }),
        ...('terminal' in permit && permit.terminal !== null && { terminal: true as const }),
        ...(recording !== undefined && { recording }),
      }),
    )
    reach('journalled', key.request_id)
    return recorded
  }

  #started({ key }: RunSubject, { pid, containment }: ProgramStart): void {
    const { counters, log } = this.#deps
    const { agent_id, request_id } = key
    reach('spawned', request_id)
    counters.sessionStarted(agent_id)
    log.info({ agent: shortId(agent_id), request_id, program_pid: pid }, 'a program was started')
    void this.record(key, async (journal) => journal.append({ event: 'started', ...key, pid, containment }))
  }

  async #ended(subject: RunSubject, facts: ExitFacts, recording?: RecordingEnd): Promise<Uint8Array> {
    const { key } = subject
    const { counters, log } = this.#deps
    reach('ended', key.request_id)
    counters.sessionOutcome(facts)
    const { code, signal, duration_ms } = facts
    log.info({ agent: shortId(key.agent_id), request_id: key.request_id, code, signal, duration_ms }, 'a program has ended')
    const [frame] = await Promise.all([
      this.#exit(subject, facts),
      this.record(key, async (journal) => journal.append({ event: 'exit', ...key, ...endOf(facts), ...(recording && { recording }) })),
    ])
    reach('exit_signed', key.request_id)
    return frame
  }

  async #exit(subject: RunSubject, facts: ExitFacts): Promise<Uint8Array> {
    const body = execExit.encode({ ...this.#from(subject), request_sha256: subject.requestSha256, ...facts })
    return execFrame.encode({ type: 'exit', body, signature: await this.#deps.signatures.sign(EXEC_EXIT_DOMAIN, body) })
  }

  /** First fields of everything that is signed for a requester. */
  #from({ key }: RunSubject) {
    return {
      version: 1 as const,
      request_id: key.request_id,
      from_agent: this.#own.agentId,
      from_machine: this.#own.machineId,
      to_agent: key.agent_id,
      to_machine: key.machine_id,
    }
  }

  /** False if the line is not on disk. Every failure is counted, unless the configuration wants no audit log. */
  async record({ request_id }: RunKey, write: (journal: Journal) => Promise<void>): Promise<boolean> {
    const { journal, counters, log } = this.#deps
    if (journal === null) return false
    try {
      await write(journal)
      return true
    } catch (error) {
      counters.count('audit_write_failures')
      log.error({ request_id, error: errorText(error) }, 'a line of the journal could not be written')
      return false
    }
  }
}
