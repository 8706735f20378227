import { join } from 'node:path'
import type { Duplex } from 'node:stream'

import type { Journal } from '../audit/journal.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { ExecCounters } from '../diagnostics/exec-counters.ts'
import { loadOrCreateSeed } from '../identity/key-file.ts'
import { OPERATOR_KEY_FILE } from '../identity/operator-proof.ts'
import type { AgentSigner } from '../identity/signing.ts'
import { scrubbedEnvironment } from '../policy/environment.ts'
import { AclInForce } from '../policy/mesh/acl-in-force.ts'
import type { LoadedAcl } from '../policy/mesh/load-acl.ts'
import { Slots } from '../policy/slots.ts'
import type { CellSource } from '../process/cells.ts'
import type { DeskLink } from '../desk/desk-link.ts'
import type { DeskCounts } from '../desk/open-desk.ts'
import type { Guardian } from '../process/guardian.ts'
import type { MachineId } from '../protocol/ids.ts'
import type { Contacts } from '../trust/contacts.ts'
import type { Group } from '../trust/groups.ts'
import type { Revocations } from '../trust/revocations.ts'
import { wayBack, type Succession } from '../trust/successions.ts'
import { AclReload, type ReloadOutcome } from './acl-reload.ts'
import type { AskedRuns } from './asked/asked-runs.ts'
import { AuthorityJournal } from './authority-journal.ts'
import { CallerSecrets, type HeldTokens } from './caller-secrets.ts'
import { Calls } from './calls.ts'
import { Detached } from './detached/detached.ts'
import { IncomingRuns } from './incoming-runs.ts'
import { Links } from './links/links.ts'
import { Nonces } from './links/nonces.ts'
import { Operations } from './operations.ts'
import { OperatorGate } from './operator-gate.ts'
import { UnackedTotal } from './runs/outbox.ts'
import { PeerRevocations } from './links/peer-revocations.ts'
import { PeerSuccessions } from './links/peer-successions.ts'
import { PortSession, type NetworkHost } from './port-session.ts'
import type { CallerTokens } from './port/messages.ts'
import { Reports } from './runs/reports.ts'
import { ApproverAsks } from './runs/approver-asks.ts'
import { PeerQuestions } from './runs/peer-questions.ts'
import { Requests } from './runs/requests.ts'
import { RunWatch } from './run-watch.ts'
import { Runs } from './runs/runs.ts'
import { Signatures } from './links/signatures.ts'
import { TrustJudge } from './links/trust-judge.ts'
import { Views } from './views.ts'

/** Contacts and revocations are loaded, journal and guardian started before the executor is. */
export interface ExecutorComponents {
  readonly acl: LoadedAcl
  /** Detached runs that this daemon asked for. */
  readonly asked: AskedRuns
  /** Has judged the ACL. */
  readonly cells: CellSource
  readonly clock: Clock
  readonly contacts: Contacts
  readonly counters: ExecCounters
  /** Asked where a human must allow a run; null: then it is denied. */
  readonly desk?: DeskLink | null
  /** Of a desk that this process hosts; null: it hosts none. */
  readonly deskCounts?: () => DeskCounts | null
  readonly guardian: Guardian
  /** Null only where the ACL names no journal; then nothing can run. */
  readonly journal: Journal | null
  readonly log: Logger
  /** Of what this agent asks of others; started before the executor is. */
  readonly outgoing: Journal
  readonly revocations: Revocations
  readonly signer: AgentSigner
  /** What this agent's keys have said one of the other. */
  readonly successions?: readonly Succession[]
  /** Of callers of the API; null: this executor has none that could be made anew. */
  readonly tokens?: HeldTokens | null
}

export interface ExecutorInit {
  /** Where `operator.key` lies. */
  readonly dataDir: string
  readonly machineId: MachineId
  /** A system daemon: its operators read `operator.key` as members of its group. */
  readonly groupMayRead?: boolean
  /** How long agents have whose word a run needs, where no human of this host is asked. */
  readonly askTimeoutMs?: number
  /** Of the operator's file. Default: none. */
  readonly groups?: readonly Group[]
  /** Requests are signed for operators only. Default: for whoever the network's half speaks for. */
  readonly requireOperatorProof?: boolean
}

/** A daemon's directory that its group may enter. */
const SHARED_DIR = 0o750

/** The half that holds the agent key, decides, and runs programs. It never sees the network, only the port. */
export class Executor implements Startable {
  readonly #components: ExecutorComponents
  readonly #init: ExecutorInit
  readonly #inForce: AclInForce
  readonly #signatures: Signatures
  readonly #judge: TrustJudge
  readonly #runs: Runs
  readonly #detached: Detached
  readonly #approvers: ApproverAsks
  readonly #revocations: PeerRevocations
  readonly #views: Views
  readonly #sessions = new Set<PortSession>()
  /** What answers to the operator; once `operator.key` is read. */
  #proven: {
    readonly authority: AuthorityJournal
    readonly operations: Operations
    readonly requests: Requests
    readonly successions: PeerSuccessions
  } | null = null
  #unsubscribe: () => void = () => undefined

  constructor(components: ExecutorComponents, init: ExecutorInit) {
    const { acl, cells, clock, contacts, counters, guardian, journal, log, outgoing, revocations, signer } = components
    const own = { agentId: signer.agentId, machineId: init.machineId }
    this.#components = components
    this.#init = init
    this.#signatures = new Signatures({ signer, counters, clock })
    this.#judge = new TrustJudge({ contacts, revocations }, own)
    const requireOperatorProof = init.requireOperatorProof ?? false
    const inForce = new AclInForce(acl)
    this.#inForce = inForce
    const { deskCounts = () => null } = components
    this.#views = new Views(
      { inForce, contacts, counters, deskCounts, judge: this.#judge, journal, outgoing, revocations },
      { ...own, requireOperatorProof, groups: init.groups ?? [] },
    )
    this.#revocations = new PeerRevocations(
      { inForce, contacts, counters, log, revocations },
      { agentId: signer.agentId, onRevoked: () => this.#trustChanged() },
    )
    const reports = new Reports({ journal, counters, log, signatures: this.#signatures }, own)
    const policy = {
      get acl() {
        return inForce.acl
      },
      slots: new Slots(acl.acl.caps),
      env: scrubbedEnvironment(),
    }
    const { desk = null } = components
    const total = new UnackedTotal()
    const signatures = this.#signatures
    const questions = new PeerQuestions({ clock, counters, desk, judge: this.#judge, log, reports, signatures }, own)
    this.#approvers = new ApproverAsks({ clock, counters, judge: this.#judge, signatures }, own)
    const watch = desk && new RunWatch({ clock, desk })
    this.#detached = new Detached({ clock, counters, log, reports, total }, { dataDir: init.dataDir })
    this.#runs = new Runs(
      {
        approvers: this.#approvers,
        questions,
        cells,
        clock,
        counters,
        detached: this.#detached,
        desk,
        guardian,
        judge: this.#judge,
        log,
        policy,
        reports,
        total,
        watch,
      },
      { ...own, askTimeoutMs: init.askTimeoutMs },
    )
  }

  /** Makes `operator.key` on first start. Throws `loose_permissions` or `bad_key_file`. */
  async start(): Promise<void> {
    const { clock, contacts, counters, journal, log, outgoing, revocations } = this.#components
    const { dataDir, groupMayRead = false, machineId, requireOperatorProof = false } = this.#init
    const signatures = this.#signatures
    await Promise.all([this.#detached.load(), this.#runs.load()])
    const file = { path: join(dataDir, OPERATOR_KEY_FILE), header: null, groupMayRead }
    const key = groupMayRead ? await loadOrCreateSeed(file, SHARED_DIR) : await loadOrCreateSeed(file)
    const gate = new OperatorGate({ clock }, { key })
    const authority = new AuthorityJournal({ counters, journal: journal ?? outgoing, log })
    const secrets = new CallerSecrets(
      { gate, tokens: this.#components.tokens ?? null },
      { operatorKey: file, onTokens: (tokens) => this.#tellTokens(tokens) },
    )
    const incoming = new IncomingRuns({ judge: this.#judge, runs: this.#runs })
    this.#proven = {
      authority,
      operations: new Operations(
        { authority, clock, contacts, gate, incoming, revocations, secrets, signatures },
        { onRevoked: () => this.#ownRevoked() },
      ),
      successions: new PeerSuccessions(
        { authority, contacts, counters, log, revocations },
        { own: wayBack(this.#components.successions ?? [], signatures.agentId) },
      ),
      requests: new Requests(
        { authority, clock, contacts, counters, gate, outgoing, signatures },
        { machineId, requireOperatorProof, known: () => this.#views.snapshot() },
      ),
    }
    this.#unsubscribe = contacts.onChange(() => this.#trustChanged())
  }

  /**
   * Takes no more requests and ends every program; answers when all have ended and are journalled, and
   * their Exits are with the network's half. To be called before the network is taken down.
   */
  async endRuns(): Promise<void> {
    await this.#runs.stop()
  }

  async stop(): Promise<void> {
    await this.endRuns()
    this.#detached.stop()
    this.#unsubscribe()
    await Promise.all([...this.#sessions].map((session) => session.finish()))
  }

  get acl(): LoadedAcl {
    return this.#inForce.loaded
  }

  /** Takes the ACL that `load` answers, where it narrows the one in force. */
  async reload(load: () => Promise<LoadedAcl>): Promise<ReloadOutcome> {
    const { journal, log, outgoing } = this.#components
    const reload = new AclReload({ inForce: this.#inForce, journal: journal ?? outgoing, log }, { onNarrowed: () => this.#aclNarrowed() })
    return reload.run(load)
  }

  /** Serves a network half on the other end of this byte stream, until it ends. `host`: who started it, and for what. */
  attach(duplex: Duplex, host: NetworkHost | null = null): PortSession {
    if (this.#proven === null) throw new AppError('internal', 'the executor was not started')
    const { clock, counters, log } = this.#components
    const { machineId } = this.#init
    const signatures = this.#signatures
    const nonces = new Nonces()
    const links = new Links(
      { signatures, judge: this.#judge, nonces, clock },
      { agentId: signatures.agentId, agentPublicKey: signatures.publicKey, machineId },
    )
    const [approvers, revocations, views, runs] = [this.#approvers, this.#revocations, this.#views, this.#runs]
    const init = { machineId, networkSettings: host?.settings ?? null }
    const { authority, operations, requests, successions } = this.#proven
    const { asked } = this.#components
    const calls = new Calls(
      { approvers, asked, clock, links, nonces, operations, requests, revocations, signatures, successions, views },
      init,
    )
    const session = new PortSession({
      approvers,
      authority,
      calls,
      clock,
      counters,
      duplex,
      host,
      links,
      log,
      nonces,
      revocations,
      runs,
      successions,
      views,
    })
    this.#sessions.add(session)
    counters.count('network_halves')
    void session.closed.then(() => this.#sessions.delete(session))
    return session
  }

  #tellTokens(tokens: CallerTokens): void {
    for (const session of this.#sessions) session.tellTokens(tokens)
  }

  #aclNarrowed(): number {
    const ended = this.#runs.aclNarrowed()
    for (const session of this.#sessions) session.trustChanged()
    return ended
  }

  #trustChanged(): void {
    // Runs are ended first, then the network's halves are told.
    this.#runs.accessChanged()
    for (const session of this.#sessions) session.trustChanged()
  }

  #ownRevoked(): void {
    this.#trustChanged()
    for (const session of this.#sessions) session.shareRevocations()
  }
}
