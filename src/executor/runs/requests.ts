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
import { EXEC_TERMINAL_REQUEST_DOMAIN, type ExecTerminalRequest, execTerminalRequest } from '../../protocol/wire/terminal.ts'
import type { Message } from '../../protocol/wire/schema.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { Signatures } from '../links/signatures.ts'
import type { ExecutorServices } from '../services.ts'
import { TerminalInputs } from './terminal-inputs.ts'
import { ProvenRequests } from './proven-requests.ts'
import { AuthorizedFanouts, type RequestToSign, checkProvenRequest } from './operator-proofs.ts'

interface Waiting {
  readonly domain: string
  readonly body: Uint8Array
  /** Resolves when the log line is on disk, or to the error if it cannot be written. Never rejects. */
  readonly recorded: Promise<{ readonly error: unknown } | null>
  readonly answer: PromiseWithResolvers<Uint8Array>
}

/**
 * Signs concurrent requests together. While one signature is made, new requests wait for the next, which covers all of them. A single
 * Request is signed at once. A fan-out costs few signatures.
 */
export class RequestBatches {
  readonly #signatures: Pick<Signatures, 'sign'>
  readonly #waiting: Waiting[] = []
  #isSigning = false

  constructor(deps: { readonly signatures: Pick<Signatures, 'sign'> }) {
    this.#signatures = deps.signatures
  }

  /** Returns a signature for `verifyInBatch` when `recorded` has settled for the whole batch. Throws the error of its `recorded`. */
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
   * Each member of a batch can derive the proofs of the others, so no signature is handed out before all lines are on disk. If one line
   * fails, the batch is signed again without it.
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

export type RequestsDeps = Pick<ExecutorServices, 'authority' | 'clock' | 'contacts' | 'counters' | 'gate' | 'outgoing' | 'signatures'>

export interface RequestsInit {
  readonly machineId: MachineId
  readonly requireOperatorProof: boolean
  /** Contacts and groups as the network process sees them. */
  known(): Pick<Snapshot, 'contacts' | 'groups'>
}

/** Rate of signed cancels, with a burst for all runs that can be remembered at once. Each costs a log line of about 400 bytes. */
const CANCELS = { burst: MAX_ASKED_RUNS, perSecond: 16 } as const

const NO_NONCE = new Uint8Array(NONCE_BYTES)

/** Digest of everything that a repeated Request must repeat, which is all but nonce and time. */
const digestOf = (content: Uint8Array, proof: string): string => toHex(sha256(content, Buffer.from(proof)))

type Call<T extends ToExecutor['type']> = Extract<ToExecutor, { type: T }>

interface Signed {
  readonly body: Uint8Array
  readonly signature: Uint8Array
}

type ProvenCall = RequestProof & { readonly fanout: RequestId | null }

/** Checks the operator proof of this agent's requests if needed, logs them, then signs. */
export class Requests {
  /** Signs what local clients type into the terminals of their runs. */
  readonly terminals: TerminalInputs
  readonly #deps: RequestsDeps
  readonly #init: RequestsInit
  readonly #proven: ProvenRequests
  readonly #fanouts: AuthorizedFanouts
  readonly #batches: RequestBatches
  readonly #cancels: TokenBucket

  constructor(deps: RequestsDeps, init: RequestsInit) {
    this.#deps = deps
    this.#init = init
    this.#proven = new ProvenRequests(deps)
    this.#fanouts = new AuthorizedFanouts(deps)
    this.#batches = new RequestBatches(deps)
    this.#cancels = new TokenBucket(deps, CANCELS)
    this.terminals = new TerminalInputs(deps)
  }

  /** Throws `operator_proof_required`, `bad_request`, `conflict`, `rate_limited`. Then all of its Requests are unproven. */
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

  /** A target denied a Request with `draining`, so that it may be signed once more. Throws `malformed`. */
  denied({ request_id, ...exit }: Call<'request_denied'>): void {
    this.#proven.denied(request_id, exit)
  }

  fanoutOver(fanout: RequestId): object {
    this.#fanouts.over(fanout)
    return {}
  }

  /**
   * Resolves when the log line is on disk. Throws `operator_proof_required`, `bad_request`, `malformed`, `rate_limited`,
   * `journal_unavailable`. Then no signature leaves the executor.
   */
  async sign(call: Call<'sign_request'>, peer: PeerLink): Promise<Signed> {
    const { argv, stdin, timeout_ms, cwd, clamp } = call
    const request: ExecRequest = { ...this.#asked(call, peer), argv, stdin, timeout_ms, cwd, clamp }
    return this.#signRun(
      { domain: EXEC_REQUEST_DOMAIN, message: execRequest, request },
      { ...request, detach: null, terminal: null },
      call,
      peer,
    )
  }

  /** Like `sign`, for a detached run. */
  async signDetach(call: Call<'sign_detach_request'>, peer: PeerLink): Promise<Signed> {
    const { argv, cwd, clamp, lifetime_ms, keep_bytes } = call
    const request: ExecDetachRequest = { ...this.#asked(call, peer), argv, cwd, clamp, lifetime_ms, keep_bytes }
    const toSign = { ...request, stdin: null, timeout_ms: null, detach: { lifetime_ms, keep_bytes }, terminal: null }
    const signed = { domain: EXEC_DETACH_REQUEST_DOMAIN, message: execDetachRequest, request }
    return this.#signRun(signed, toSign, { ...call, fanout: null }, peer)
  }

  /** Like `sign`, for a run on a terminal. */
  async signTerminal(call: Call<'sign_terminal_request'>, peer: PeerLink): Promise<Signed> {
    const { argv, timeout_ms, clamp, columns, rows, term } = call
    const terminal = { columns, rows, term }
    const request: ExecTerminalRequest = { ...this.#asked(call, peer), argv, timeout_ms, clamp, ...terminal }
    const signed = { domain: EXEC_TERMINAL_REQUEST_DOMAIN, message: execTerminalRequest, request }
    const answer = await this.#signRun(
      signed,
      { ...request, stdin: null, cwd: null, detach: null, terminal },
      { ...call, fanout: null },
      peer,
    )
    this.terminals.opened(answer.body)
    return answer
  }

  /**
   * Signs a request for the rules of this agent on a target. It needs no operator proof, because it runs no program. Resolves when the log
   * line is on disk. Throws `rate_limited`, `journal_unavailable`.
   */
  async signRules(call: Call<'sign_rules_request'>, peer: PeerLink): Promise<Signed> {
    const { signatures } = this.#deps
    signatures.admit()
    const fields = this.#asked(call, peer)
    const { request_id, to_agent: agent_id, to_machine: machine_id } = fields
    const event = { event: 'rules_asked', request_id, agent_id, machine_id } as const
    return this.#signed(EXEC_RULES_REQUEST_DOMAIN, execRulesRequest.encode(fields), this.#append(event))
  }

  /** Signs a request about a detached run of this agent. It needs no operator proof, as it runs no program. Throws like `signRules`. */
  async signDetachedAsk(call: Call<'sign_detached_ask'>, peer: PeerLink): Promise<Signed> {
    const { ask, from } = call
    this.#admitAsk(ask)
    const fields = { ...this.#asked(call, peer), ask, from }
    const { request_id, to_agent: agent_id, to_machine: machine_id } = fields
    const event = { event: 'detached_asked', request_id, agent_id, machine_id, ask, from } as const
    return this.#signed(EXEC_DETACHED_ASK_DOMAIN, execDetachedAsk.encode(fields), this.#append(event))
  }

  async #signRun<T extends ExecRulesRequest>(
    { domain, message, request }: { readonly domain: string; readonly message: Pick<Message<T>, 'encode'>; readonly request: T },
    toSign: RequestToSign,
    call: ProvenCall,
    { agentPublicKey }: PeerLink,
  ): Promise<Signed> {
    const { request_id, to_agent: agent_id, to_machine: machine_id } = request
    const { argv, stdin, timeout_ms, detach, terminal } = toSign
    reach('sign_asked', request_id)
    checkArgvSize(argv)
    // Before the log line, so that the network process fills the disk no faster than it may have signatures. Before the proof, which is
    // valid once and still needed after a refusal.
    this.#deps.signatures.admit()
    const content = (): Uint8Array => message.encode({ ...request, stream_nonce: NO_NONCE, created_at_ms: 0 })
    const proven = await this.#believed(toSign, content, call)
    const ofFanout = call.fanout === null ? {} : { fanout_id: call.fanout }
    const asked = {
      argv,
      stdin_bytes: stdin?.len ?? 0,
      timeout_ms,
      proven,
      ...(detach && { detach }),
      ...(terminal && { terminal: true as const }),
    }
    const body = message.encode(request)
    if (proven) this.#proven.signed(request_id, body, agentPublicKey)
    const signed = await this.#signed(
      domain,
      body,
      this.#append({ event: 'asked', request_id, agent_id, machine_id, ...ofFanout, ...asked }),
    )
    reach('signed', request_id)
    return signed
  }

  /** Cancels have their own limit, so that other requests cannot hold them up. */
  #admitAsk(ask: DetachedAsk): void {
    if (ask !== 'cancel') return this.#deps.signatures.admit()
    if (!this.#cancels.take()) throw new AppError('rate_limited', 'too many cancels at once')
  }

  /** Common fields of all signed requests. */
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

  async #signed(domain: string, body: Uint8Array, recorded: Promise<void>): Promise<Signed> {
    return { body, signature: await this.#batches.sign(domain, body, recorded) }
  }

  /** Like `#check`, and logs a refused proof. */
  async #believed(request: RequestToSign, content: () => Uint8Array, call: ProvenCall): Promise<boolean> {
    try {
      return this.#check(request, content, call)
    } catch (error) {
      await this.#deps.authority.refused(RUN_OPERATION, error)
      throw error
    }
  }

  /** Returns whether an operator proved the Request. A given proof is always checked. */
  #check(request: RequestToSign, content: () => Uint8Array, { proof, proven, fanout }: ProvenCall): boolean {
    const { contacts, gate, signatures } = this.#deps
    const isOfProvenFanout = fanout !== null && this.#fanouts.has(fanout)
    if (proof === '' && !isOfProvenFanout && !this.#init.requireOperatorProof) return false
    const digest = digestOf(content(), isOfProvenFanout ? fanout : proof)
    if (this.#proven.take(request.request_id, digest)) return true
    if (isOfProvenFanout) this.#fanouts.spend(fanout, request)
    else {
      gate.check(RUN_OPERATION, proven, proof)
      checkProvenRequest(proven, request, { own: signatures.agentId, contacts: contacts.list() })
    }
    this.#proven.add(request.request_id, digest)
    return true
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
        `no request was sent, because ${outgoing.path} cannot be written (${why}): free disk space or fix its permissions, then check with x0xd --doctor`,
        { cause: error },
      )
    }
  }
}
