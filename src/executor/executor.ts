import { join } from 'node:path'
import type { Duplex } from 'node:stream'
import { BufferPool } from '../base/buffers.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Startable } from '../base/startable.ts'
import { TimeSlicer } from '../base/time-slices.ts'
import type { ApiTokens } from '../executor-api/messages.ts'
import { Uploads } from '../fs/uploads.ts'
import { loadOrCreateSeed } from '../identity/key-file.ts'
import { OPERATOR_KEY_FILE } from '../identity/operator-proof.ts'
import type { AgentSigner } from '../identity/signing.ts'
import { continuesJournal } from '../journal/past-runs.ts'
import { scrubbedEnvironment } from '../policy/environment.ts'
import type { EntryOwner } from '../policy/mesh/enrolled-entries.ts'
import { ApprovedReads } from '../policy/mesh/file-asking.ts'
import { AclInForce, type LoadedAcl } from '../policy/mesh/load-acl.ts'
import { Slots } from '../policy/slots.ts'
import type { MachineId } from '../protocol/ids.ts'
import { type WorkList, joinedWork } from '../protocol/handover.ts'
import { MAX_FRAME_DATA, MAX_UNACKED_PER_RUN } from '../protocol/limits/wire.ts'
import { Recordings, recordingsDirIn } from '../transcripts/recordings.ts'
import { EnrolmentKeys } from '../trust/enrolment-keys.ts'
import type { Group } from '../trust/groups.ts'
import { type Succession, previousKeys } from '../trust/successions.ts'
import { type ReloadOutcome, reloadAcl } from './acl-reload.ts'
import { AuthorityJournal } from './authority-journal.ts'
import { Detached } from './detached/detached.ts'
import { EnrolOperations } from './enrolment/enrol-operations.ts'
import { HostEnrolment, type HostEnrolmentInit } from './enrolment/host-enrolment.ts'
import { Registrar } from './enrolment/registrar.ts'
import { IncomingRuns } from './incoming-runs.ts'
import { ExecutorLinks } from './links/executor-links.ts'
import { Nonces, newLife } from './links/nonces.ts'
import { Signatures } from './links/signatures.ts'
import { PeerRevocations, PeerSuccessions } from './links/statements.ts'
import { type OwnIds, TrustEvaluator } from './links/trust-evaluator.ts'
import { NetworkCalls, type NetworkCallsDeps } from './network-calls.ts'
import { type NetworkHost, NetworkSession } from './network-session.ts'
import { Operations } from './operations.ts'
import { ClientSecrets, type ApiTokenStore, OperatorGate } from './operator-auth.ts'
import type { DetachedRequestStore } from './requested-detached.ts'
import { LiveRunFeed } from './live-run-feed.ts'
import { ApproverAsks } from './runs/agent-approvals.ts'
import { UnackedTotal } from './runs/outbox.ts'
import { PeerApprovals } from './runs/peer-approvals.ts'
import { Reports } from './runs/reports.ts'
import { Requests } from './runs/requests.ts'
import { Runs } from './runs/runs.ts'
import type { ExecutorServices } from './services.ts'
import { Views } from './views.ts'

/** Free buffers for output, as many as one run with the largest window uses. */
const MAX_FREE_FRAMES = Math.ceil(MAX_UNACKED_PER_RUN / MAX_FRAME_DATA)

/** Before the executor starts, contacts and revocations are loaded, and journals and cleanup process are started. */
export interface ExecutorDeps
  extends
    Pick<ExecutorServices, 'trees' | 'clock' | 'contacts' | 'counters' | 'cleanup' | 'journal' | 'log' | 'outgoing' | 'revocations'>,
    Partial<Pick<ExecutorServices, 'desk' | 'deskCounts'>> {
  readonly acl: LoadedAcl
  readonly asked: DetachedRequestStore
  readonly signer: AgentSigner
  /** Statements by which earlier keys of this agent name their successors. */
  readonly successions?: readonly Succession[]
  /** The pending enrolment of this machine, or null. */
  readonly enrolment?: HostEnrolmentInit | null
  /** Tokens of API clients, or null if this executor cannot renew any. */
  readonly tokens?: ApiTokenStore | null
}

export interface ExecutorInit {
  /** Directory of `operator.key`. */
  readonly dataDir: string
  readonly machineId: MachineId
  /** The group of a system daemon may read `operator.key`. */
  readonly groupMayRead?: boolean
  /** How long remote approvers have if no local approver is asked. */
  readonly askTimeoutMs?: number
  /** If it is false, unlisted peers cannot connect. The default is true. */
  readonly acceptsUnlisted?: boolean
  /** Groups of the operator's file. Default: none. */
  readonly groups?: readonly Group[]
  /** Signs only Requests that an operator proved. Default: signs every Request that the network process sends. */
  readonly requireOperatorProof?: boolean
}

/** File of the operator's enrolment keys in the data directory. */
const ENROL_KEYS_FILE = 'enrol-keys.json'
/** This file of the data directory names the last audit log. */
const AUDIT_LOG_PATH_FILE = 'audit-log-path'

/** Mode of a data directory that its group may enter. */
const SHARED_DIR = 0o750

/** The process that holds the agent key, decides and runs programs. It reaches the network only through the executor API. */
export class Executor implements Startable {
  readonly #deps: ExecutorDeps
  readonly #init: ExecutorInit
  readonly #own: OwnIds
  readonly #services: Omit<ExecutorServices, 'authority' | 'gate'>
  readonly #runs: Runs
  readonly #incoming: IncomingRuns
  readonly #uploads: Uploads
  readonly #recordings: Recordings
  readonly #detached: Detached
  readonly #approvers: ApproverAsks
  readonly #enrolment: HostEnrolment | null
  readonly #revocations: PeerRevocations
  readonly #views: Views
  readonly #sessions = new Set<NetworkSession>()
  readonly #life = newLife()
  /** Services that need `operator.key`, or null until `start`. */
  #proven: (Pick<NetworkCallsDeps, 'operations' | 'registrar' | 'requests' | 'successions'> & Pick<ExecutorServices, 'authority'>) | null =
    null
  readonly #stopping = new AbortController()
  #unsubscribe: () => void = () => undefined

  constructor(deps: ExecutorDeps, init: ExecutorInit) {
    const { acl, clock, contacts, counters, desk = null, deskCounts = () => null, enrolment = null, revocations, signer } = deps
    const { dataDir, askTimeoutMs, machineId, requireOperatorProof = false, groups = [] } = init
    const own = { agentId: signer.agentId, machineId }
    const inForce = new AclInForce(acl)
    const policy = {
      get acl() {
        return inForce.acl
      },
      slots: new Slots(acl.acl.caps),
      env: scrubbedEnvironment(),
      reads: new ApprovedReads(deps),
    }
    const signatures = new Signatures({ signer, counters, clock })
    const trustEvaluator = new TrustEvaluator({ contacts, revocations }, own)
    const services = { ...deps, desk, deskCounts, inForce, trustEvaluator, policy, signatures }
    this.#deps = deps
    this.#init = init
    this.#own = own
    this.#services = services
    this.#views = new Views(services, { ...own, requireOperatorProof, groups, isDraining: () => this.#runs.isDraining })
    this.#revocations = new PeerRevocations(services, { agentId: own.agentId, onRevoked: () => this.#trustChanged() })
    this.#approvers = new ApproverAsks(services, own)
    this.#enrolment = enrolment === null ? null : new HostEnrolment(services, enrolment, own)
    const output = { total: new UnackedTotal(), frames: new BufferPool({ size: MAX_FRAME_DATA, max: MAX_FREE_FRAMES }) }
    this.#uploads = new Uploads({ clock })
    this.#recordings = new Recordings(deps, { directory: recordingsDirIn(dataDir) })
    const files = { uploads: this.#uploads, recordings: this.#recordings, sharing: new TimeSlicer({ clock }) }
    const shared = { ...services, ...output, ...files, reports: new Reports(services, own), approvers: this.#approvers }
    this.#detached = new Detached(shared, { dataDir })
    const approvalRequests = new PeerApprovals(shared, own)
    const watch = desk && new LiveRunFeed({ clock, desk })
    this.#runs = new Runs({ ...shared, detached: this.#detached, approvalRequests, watch }, { ...own, askTimeoutMs })
    this.#incoming = new IncomingRuns({ trustEvaluator, runs: this.#runs })
  }

  /** Creates `operator.key` on the first start. Throws `loose_permissions` and `bad_key_file`. */
  async start(): Promise<void> {
    const { clock, contacts, signatures, journal, outgoing } = this.#services
    const { successions: said = [], tokens = null } = this.#deps
    const { acceptsUnlisted = true, dataDir, groupMayRead = false, machineId, requireOperatorProof = false } = this.#init
    const keys = new EnrolmentKeys({ path: join(dataDir, ENROL_KEYS_FILE) })
    const isSameLog = journal !== null && (await continuesJournal(join(dataDir, AUDIT_LOG_PATH_FILE), journal.path))
    await Promise.all([this.#detached.load(), this.#runs.load(isSameLog), this.#recordings.start(), keys.load()])
    const file = { path: join(dataDir, OPERATOR_KEY_FILE), header: null, groupMayRead }
    const key = groupMayRead ? await loadOrCreateSeed(file, SHARED_DIR) : await loadOrCreateSeed(file)
    const gate = new OperatorGate({ clock }, { key })
    const authority = new AuthorityJournal({ ...this.#services, journal: journal ?? outgoing })
    const services = { ...this.#services, authority, gate }
    const secrets = new ClientSecrets({ gate, tokens }, { operatorKey: file, onTokens: (renewed) => this.#sendTokens(renewed) })
    this.#proven = {
      authority,
      operations: new Operations(
        { ...services, enrolment: new EnrolOperations({ ...services, keys, acceptsUnlisted }), incoming: this.#incoming, secrets },
        { onRevoked: () => this.#ownRevoked() },
      ),
      registrar: new Registrar({ ...services, keys }, this.#own),
      successions: new PeerSuccessions(services, { own: previousKeys(said, signatures.agentId) }),
      requests: new Requests(services, { machineId, requireOperatorProof, known: () => this.#views.snapshot() }),
    }
    this.#unsubscribe = contacts.onChange(() => this.#trustChanged())
  }

  /**
   * Refuses new requests and ends every program. Resolves when all ends are logged and the network process has their Exits. Call it before
   * the network stops.
   */
  async endRuns(): Promise<void> {
    this.#stopping.abort()
    await this.#runs.stop()
  }

  /** Denies new runs with `draining`, or accepts them again. Runs that have begun go on. */
  drain(isDraining: boolean): void {
    this.#runs.drain(isDraining)
    const operation = isDraining ? 'drain' : 'drain_cancelled'
    void this.#proven?.authority.announce({ operation, agent: null, machine: null, level: null }, { widens: false })
    for (const session of this.#sessions) session.drain(isDraining)
  }

  /** Work that has not ended, or null while a network process has not reported the work of its clients. Valid during a drain. */
  get work(): WorkList | null {
    const clients = [...this.#sessions].map(({ clientWork }) => clientWork)
    if (clients.includes(null)) return null
    return joinedWork([this.#incoming.work, ...clients.filter((list) => list !== null)])
  }

  async stop(): Promise<void> {
    await this.endRuns()
    this.#uploads.stop()
    this.#recordings.stop()
    this.#detached.stop()
    this.#unsubscribe()
    await Promise.all([...this.#sessions].map((session) => session.finish()))
  }

  get acl(): LoadedAcl {
    return this.#services.inForce.loaded
  }

  /** Replaces the ACL in force by the one that `load` returns, if that is narrower. */
  async reload(load: () => Promise<LoadedAcl>): Promise<ReloadOutcome> {
    const { journal, outgoing } = this.#services
    return reloadAcl({ ...this.#services, journal: journal ?? outgoing }, load, () => this.#aclNarrowed())
  }

  /** Has this machine enrolled if that is pending, as `HostEnrolment.run`, until `endRuns`. `onAcl` is called after the ACL was extended. */
  async enrol(onAcl: () => Promise<void>): Promise<boolean> {
    if (this.#proven === null) throw new AppError('internal', 'the executor was not started')
    const { authority } = this.#proven
    const { inForce, journal, log, outgoing } = this.#services
    const adopt = async (loaded: LoadedAcl, operator: EntryOwner): Promise<boolean> => {
      if (!inForce.extend(loaded, operator)) return false
      const { loaded_from: file, sha256 } = loaded
      const detail = 'extended by the enrolment of this machine'
      await (journal ?? outgoing).append({ event: 'reload', outcome: 'taken', file, sha256, detail }).catch((error: unknown) => {
        log.error({ error: errorText(error) }, 'a line of the journal could not be written')
      })
      for (const session of this.#sessions) session.trustChanged()
      await onAcl()
      return true
    }
    return this.#enrolment === null || this.#enrolment.run({ authority, adopt }, this.#stopping.signal)
  }

  /** Serves a network process over this byte stream until it ends. `host` started that process, or null if somebody else did. */
  attach(duplex: Duplex, host: NetworkHost | null = null): NetworkSession {
    if (this.#proven === null) throw new AppError('internal', 'the executor was not started')
    const { signatures, counters } = this.#services
    const nonces = new Nonces({ life: this.#life })
    const links = new ExecutorLinks({ ...this.#services, nonces }, { ...this.#own, agentPublicKey: signatures.publicKey })
    const shared = {
      ...this.#services,
      ...this.#proven,
      approvers: this.#approvers,
      asked: this.#deps.asked,
      enrolment: this.#enrolment,
      links,
      nonces,
      revocations: this.#revocations,
      runs: this.#runs,
      views: this.#views,
    }
    const calls = new NetworkCalls(shared, { machineId: this.#own.machineId, networkSettings: host?.settings ?? null })
    const session = new NetworkSession({ ...shared, calls, duplex, host })
    this.#sessions.add(session)
    counters.count('network_halves')
    void session.closed.then(() => this.#sessions.delete(session))
    return session
  }

  #sendTokens(tokens: ApiTokens): void {
    for (const session of this.#sessions) session.sendTokens(tokens)
  }

  #aclNarrowed(): number {
    const ended = this.#runs.aclNarrowed()
    for (const session of this.#sessions) session.trustChanged()
    return ended
  }

  #trustChanged(): void {
    // Runs are ended before the network process learns of the change.
    this.#runs.accessChanged()
    for (const session of this.#sessions) session.trustChanged()
  }

  #ownRevoked(): void {
    this.#trustChanged()
    for (const session of this.#sessions) session.shareRevocations()
  }
}
