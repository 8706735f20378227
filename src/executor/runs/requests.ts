import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { reach } from '../../base/run-stages.ts'
import type { RequestProof, ToExecutor } from '../../executor-api/messages.ts'
import type { Snapshot } from '../../executor-api/snapshot.ts'
import { sha256 } from '../../identity/hash.ts'
import { FANOUT_OPERATION, RUN_OPERATION } from '../../identity/operator-proof.ts'
import { batchLeaf, signBatch } from '../../identity/signing.ts'
import type { JournalRequest, JournalDetachedRequest, JournalRulesRequest } from '../../journal/events.ts'
import { type MachineId, type RequestId, toHex } from '../../protocol/ids.ts'
import { MAX_ASKED_RUNS } from '../../protocol/limits/detached.ts'
import { MAX_BATCH, NONCE_BYTES } from '../../protocol/limits/wire.ts'
import {
  type DetachedAsk,
  EXEC_DETACHED_ASK_DOMAIN,
  EXEC_DETACH_REQUEST_DOMAIN,
  type ExecDetachRequest,
  execDetachRequest,
  execDetachedAsk,
} from '../../protocol/wire/detached.ts'
import {
  EXEC_REQUEST_DOMAIN,
  EXEC_RULES_REQUEST_DOMAIN,
  type ExecRequest,
  type ExecRulesRequest,
  checkArgvSize,
  execRequest,
  execRulesRequest,
} from '../../protocol/wire/exec.ts'
import type { Message } from '../../protocol/wire/schema.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { Signatures } from '../links/signatures.ts'
import type { ExecutorServices } from '../services.ts'
import { AuthorizedFanouts, type RequestToSign, checkProvenRequest } from './operator-proofs.ts'

interface Waiting {
  readonly domain: string
  readonly body: Uint8Array
  /** Once its line is on the disk, or cannot be: then with why. Never rejects. */
  readonly recorded: Promise<{ readonly error: unknown } | null>
  readonly answer: PromiseWithResolvers<Uint8Array>
}

/**
 * What is asked of many peers, signed together: while a signature is being made, whatever comes waits for the next one, which is for all of it.
 * So one Request alone waits for nothing, and those of a fan-out cost a signature for as many as come meanwhile.
 */
export class RequestBatches {
  readonly #signatures: Pick<Signatures, 'sign'>
  readonly #waiting: Waiting[] = []
  #isSigning = false

  constructor(deps: { readonly signatures: Pick<Signatures, 'sign'> }) {
    this.#signatures = deps.signatures
  }

  /** A signature for `verifyInBatch`, once `recorded` is settled for all of its batch. Throws what its own `recorded` throws. */
  async sign(domain: string, body: Uint8Array, recorded: Promise<void>): Promise<Uint8Array> {
    const answer = Promise.withResolvers<Uint8Array>()
    const settled = recorded.then(
      () => null,
      (error: unknown) => ({ error }),
    )
    this.#waiting.push({ domain, body, recorded: settled, answer })
    if (!this.#isSigning) void this.#signWaiting()
    return answer.promise
  }

  async #signWaiting(): Promise<void> {
    this.#isSigning = true
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_BATCH)
      const made = this.#made(batch)
      void this.#answerAll(batch, made)
      await made.catch(() => undefined)
    }
    this.#isSigning = false
  }

  async #made(batch: readonly Waiting[]): Promise<Uint8Array[]> {
    const [first] = batch
    if (batch.length === 1) return [await this.#signatures.sign(first!.domain, first!.body)]
    return signBatch(
      this.#signatures,
      batch.map(({ domain, body }) => batchLeaf(domain, body)),
    )
  }

  /**
   * The signature that one is given is good for all the others, whose path can be told from its own: nobody is given it before all are recorded.
   * Where one cannot be, it is thrown away, and the others are signed anew: who asks for too much breaks nobody else's.
   */
  async #answerAll(batch: readonly Waiting[], made: Promise<Uint8Array[]>): Promise<void> {
    try {
      const signatures = await made
      const failures = await Promise.all(batch.map(async ({ recorded }) => recorded))
      failures.forEach((failure, index) => failure !== null && batch[index]!.answer.reject(failure.error))
      const rest = batch.filter((_, index) => failures[index] === null)
      if (rest.length === 0) return
      const good = rest.length === batch.length ? signatures : await this.#made(rest)
      rest.forEach(({ answer }, index) => answer.resolve(good[index]!))
    } catch (error) {
      for (const { answer } of batch) answer.reject(error)
    }
  }
}

/** How long after its signature a proven Request may be signed once more, for another stream of the same peer: all the time that a lost run is looked for. */
export const SIGN_AGAIN_MS = 15_000

export type RequestsDeps = Pick<ExecutorServices, 'authority' | 'clock' | 'contacts' | 'counters' | 'gate' | 'outgoing' | 'signatures'>

export interface RequestsInit {
  readonly machineId: MachineId
  readonly requireOperatorProof: boolean
  /** Whom words of a fan-out may mean: as the network's half is shown it. */
  known(): Pick<Snapshot, 'contacts' | 'groups'>
}

/** Cancels of detached runs that are signed: of all that may be remembered at once, each a line of some 400 bytes. */
const CANCELS = { burst: MAX_ASKED_RUNS, perSecond: 16 } as const

const NO_NONCE = new Uint8Array(NONCE_BYTES)

/** Of everything that a Request that is signed again must repeat: all but its nonce and its time. */
const digestOf = (content: Uint8Array, proof: string): string => toHex(sha256(content, Buffer.from(proof)))

type Call<T extends ToExecutor['type']> = Extract<ToExecutor, { type: T }>

interface Signed {
  readonly body: Uint8Array
  readonly signature: Uint8Array
}

/** What shows that an operator wants a Request. */
type ProvenCall = RequestProof & { readonly fanout: RequestId | null }

/** The Requests of this agent: proven where they must be, journalled always, then signed. */
export class Requests {
  readonly #deps: RequestsDeps
  readonly #init: RequestsInit
  /** Requests that were proven a moment ago, the oldest first: a proof is good once, and one that never arrived is sent again. */
  readonly #proven = new Map<RequestId, { readonly digest: string; readonly until: number }>()
  readonly #fanouts: AuthorizedFanouts
  readonly #batches: RequestBatches
  readonly #cancels: TokenBucket

  constructor(deps: RequestsDeps, init: RequestsInit) {
    this.#deps = deps
    this.#init = init
    this.#fanouts = new AuthorizedFanouts(deps)
    this.#batches = new RequestBatches(deps)
    this.#cancels = new TokenBucket(deps, CANCELS)
  }

  /** Throws `operator_proof_required`, `bad_request`, `conflict`, `rate_limited`; then none of its Requests is proven. */
  async proveFanout({ fanout, proven, proof }: Call<'prove_fanout'>): Promise<object> {
    const { authority, gate, signatures } = this.#deps
    try {
      gate.check(FANOUT_OPERATION, proven, proof)
      const { contacts, groups } = this.#init.known()
      this.#fanouts.add(fanout, proven, { own: signatures.agentId, contacts, groups })
    } catch (error) {
      await authority.refused(FANOUT_OPERATION, error)
      throw error
    }
    return {}
  }

  fanoutOver(fanout: RequestId): object {
    this.#fanouts.over(fanout)
    return {}
  }

  /**
   * Answers when the line is on the disk. Throws `operator_proof_required`, `bad_request`, `malformed`,
   * `rate_limited`, `journal_unavailable`; then no signature has left us.
   */
  async sign(call: Call<'sign_request'>, peer: PeerLink): Promise<Signed> {
    const { argv, stdin, timeout_ms, cwd, clamp } = call
    const request: ExecRequest = { ...this.#asked(call, peer), argv, stdin, timeout_ms, cwd, clamp }
    return this.#signRun({ domain: EXEC_REQUEST_DOMAIN, message: execRequest, request }, { ...request, detach: null }, call)
  }

  /** As `sign`, for a run that outlives us. */
  async signDetach(call: Call<'sign_detach_request'>, peer: PeerLink): Promise<Signed> {
    const { argv, cwd, clamp, lifetime_ms, keep_bytes } = call
    const request: ExecDetachRequest = { ...this.#asked(call, peer), argv, cwd, clamp, lifetime_ms, keep_bytes }
    const toSign = { ...request, stdin: null, timeout_ms: null, detach: { lifetime_ms, keep_bytes } }
    const signed = { domain: EXEC_DETACH_REQUEST_DOMAIN, message: execDetachRequest, request }
    return this.#signRun(signed, toSign, { ...call, fanout: null })
  }

  /**
   * Signs the question which commands this agent may run there. It runs nothing, so no operator has to prove it. Answers
   * when the line is on the disk. Throws `rate_limited`, `journal_unavailable`.
   */
  async signRules(call: Call<'sign_rules_request'>, peer: PeerLink): Promise<Signed> {
    const { signatures } = this.#deps
    signatures.admit()
    const question = this.#asked(call, peer)
    const { request_id, to_agent: agent_id, to_machine: machine_id } = question
    const event = { event: 'rules_asked', request_id, agent_id, machine_id } as const
    return this.#signed(EXEC_RULES_REQUEST_DOMAIN, execRulesRequest.encode(question), this.#append(event))
  }

  /** Signs a question about a detached run of ours. It runs nothing, so no operator has to prove it. Throws as `signRules`. */
  async signDetachedAsk(call: Call<'sign_detached_ask'>, peer: PeerLink): Promise<Signed> {
    const { ask, from } = call
    this.#admitAsk(ask)
    const question = { ...this.#asked(call, peer), ask, from }
    const { request_id, to_agent: agent_id, to_machine: machine_id } = question
    const event = { event: 'detached_asked', request_id, agent_id, machine_id, ask, from } as const
    return this.#signed(EXEC_DETACHED_ASK_DOMAIN, execDetachedAsk.encode(question), this.#append(event))
  }

  async #signRun<T extends ExecRulesRequest>(
    { domain, message, request }: { readonly domain: string; readonly message: Pick<Message<T>, 'encode'>; readonly request: T },
    toSign: RequestToSign,
    call: ProvenCall,
  ): Promise<Signed> {
    const { request_id, to_agent: agent_id, to_machine: machine_id } = request
    const { argv, stdin, timeout_ms, detach } = toSign
    reach('sign_asked', request_id)
    checkArgvSize(argv)
    // Before the journal line, so that the network half fills the disk no faster than it may have signatures; before the
    // proof, which is good once: a caller that is refused here needs it again.
    this.#deps.signatures.admit()
    const content = (): Uint8Array => message.encode({ ...request, stream_nonce: NO_NONCE, created_at_ms: 0 })
    const proven = await this.#believed(toSign, content, call)
    const ofFanout = call.fanout === null ? {} : { fanout_id: call.fanout }
    const asked = { argv, stdin_bytes: stdin?.len ?? 0, timeout_ms, proven, ...(detach && { detach }) }
    const body = message.encode(request)
    const signed = await this.#signed(
      domain,
      body,
      this.#append({ event: 'asked', request_id, agent_id, machine_id, ...ofFanout, ...asked }),
    )
    reach('signed', request_id)
    return signed
  }

  /** A cancel is not kept out by what else is asked: it has a bound of its own, which its line in the journal needs no other beside. */
  #admitAsk(ask: DetachedAsk): void {
    if (ask !== 'cancel') return this.#deps.signatures.admit()
    if (!this.#cancels.take()) throw new AppError('rate_limited', 'too many cancels at once')
  }

  /** All of a question for rules, and how a Request begins. */
  #asked({ request_id, stream_nonce }: Pick<ExecRulesRequest, 'request_id' | 'stream_nonce'>, to: PeerLink): ExecRulesRequest {
    const { clock, signatures } = this.#deps
    return {
      version: 1,
      request_id,
      from_agent: signatures.agentId,
      from_machine: this.#init.machineId,
      to_agent: to.agentId,
      to_machine: to.machineId,
      stream_nonce,
      created_at_ms: clock.now(),
    }
  }

  /** When the line is on the disk. */
  async #signed(domain: string, body: Uint8Array, recorded: Promise<void>): Promise<Signed> {
    return { body, signature: await this.#batches.sign(domain, body, recorded) }
  }

  /** As `#check`; a proof that is none leaves a line. */
  async #believed(request: RequestToSign, content: () => Uint8Array, call: ProvenCall): Promise<boolean> {
    try {
      return this.#check(request, content, call)
    } catch (error) {
      await this.#deps.authority.refused(RUN_OPERATION, error)
      throw error
    }
  }

  /** Whether an operator proved it. What was proven is looked at even where no proof is needed. `content`: asked for where there is a proof. */
  #check(request: RequestToSign, content: () => Uint8Array, { proof, proven, fanout }: ProvenCall): boolean {
    const { clock, contacts, gate, signatures } = this.#deps
    const isOfProvenFanout = fanout !== null && this.#fanouts.has(fanout)
    if (proof === '' && !isOfProvenFanout && !this.#init.requireOperatorProof) return false
    const digest = digestOf(content(), isOfProvenFanout ? fanout : proof)
    if (this.#wasProven(request.request_id, digest)) return true
    if (isOfProvenFanout) this.#fanouts.spend(fanout, request)
    else {
      gate.check(RUN_OPERATION, proven, proof)
      checkProvenRequest(proven, request, { own: signatures.agentId, contacts: contacts.list() })
    }
    // Proven again it is the newest.
    this.#proven.delete(request.request_id)
    this.#proven.set(request.request_id, { digest, until: clock.monotonic() + SIGN_AGAIN_MS })
    return true
  }

  /** Whether the same Request to the same peer was proven just now: only the stream is another. True once. */
  #wasProven(requestId: RequestId, digest: string): boolean {
    const now = this.#deps.clock.monotonic()
    for (const [id, { until }] of this.#proven) {
      if (until > now) break
      this.#proven.delete(id)
    }
    return this.#proven.get(requestId)?.digest === digest && this.#proven.delete(requestId)
  }

  async #append(event: JournalRequest | JournalRulesRequest | JournalDetachedRequest): Promise<void> {
    const { counters, outgoing } = this.#deps
    try {
      await outgoing.append(event)
    } catch (error) {
      if (!isAppError(error, 'journal_unavailable')) throw error
      counters.count('audit_write_failures')
      const why = errorText(error.cause ?? error)
      throw new AppError(
        'journal_unavailable',
        `nothing was asked, because ${outgoing.path} cannot be written (${why}): make room or mend its permissions; x0xd --doctor looks at it`,
        { cause: error },
      )
    }
  }
}
