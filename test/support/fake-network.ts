import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { duplexPair, type Duplex } from 'node:stream'

import { ExecutorClient } from '../../src/executor-api/client.ts'
import type { PeerRunHandle } from '../../src/executor-api/peer-run.ts'
import { agentSignerOf } from '../../src/identity/agent-key.ts'
import { randomBytes, sha256 } from '../../src/identity/hash.ts'
import { pieceHashes } from '../../src/identity/piece-hashes.ts'
import { initiatorTranscript, responderTranscript } from '../../src/identity/link-crypto.ts'
import { machineKeyOf, type MachineKey } from '../../src/identity/machine-key.ts'
import { verifyAgent, type AgentSigner } from '../../src/identity/signing.ts'
import {
  EXEC_EXIT_DOMAIN,
  EXEC_REQUEST_DOMAIN,
  execExit,
  execFrame,
  execRequest,
  type ExecExit,
  type ExecFrame,
  type ExecFrameType,
  type ExecRequest,
} from '../../src/protocol/wire/exec.ts'
import { KEM_CIPHERTEXT_BYTES, KEM_PUBLIC_KEY_BYTES, LINK_VERSION, NONCE_BYTES } from '../../src/protocol/limits/wire.ts'
import { LINK_DOMAINS, linkM1, linkM2, linkM2Core, linkM3 } from '../../src/protocol/wire/link.ts'
import type { TrustDecision } from '../../src/protocol/reasons.ts'
import { silent } from './processes.ts'

/** An agent on a machine, with all its keys. */
export interface Party {
  readonly signer: AgentSigner
  readonly machine: MachineKey
}

export const newParty = (): Party => ({ signer: agentSignerOf(randomBytes(32)), machine: machineKeyOf(randomBytes(32)) })

/** Only the network process checks the MAC. The executor process ignores it. */
const MAC = new Uint8Array(32)

/** Plays the network process of one executor through the real codec. It can behave dishonestly. */
export class FakeNetwork {
  readonly client: ExecutorClient
  /** The network's end of the port, for bytes that no honest network process would write. */
  readonly duplex: Duplex
  readonly decisions: { link: number; decision: TrustDecision }[] = []
  readonly revocations: { link: number; items: readonly Uint8Array[] }[] = []

  constructor(duplex: Duplex) {
    this.duplex = duplex
    this.client = new ExecutorClient({ duplex, log: silent })
    this.client.onLinkDecision((link, decision) => this.decisions.push({ link, decision }))
    this.client.onLinkRevocations((link, items) => this.revocations.push({ link, items }))
  }

  /** A link that this peer opened. */
  async link(peer: Party): Promise<FakeLink> {
    const { machineId } = this.client.identity
    const machines = { machine_initiator: peer.machine.machineId, machine_responder: machineId }
    const m1 = linkM1.encode({
      versions: [LINK_VERSION],
      agent_public_key: peer.signer.publicKey,
      kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
      nonce: randomBytes(NONCE_BYTES),
    })
    const accepted = await this.client.linkAccept({
      peer_machine: peer.machine.machineId,
      m1,
      kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES),
    })
    const { m2_core: core, agent_signature, handle } = accepted
    const theirs = responderTranscript(machines, m1, core)
    assert.ok(verifyAgent(this.client.identity.agentPublicKey, LINK_DOMAINS.responder_agent, theirs, agent_signature))
    const m2 = linkM2.encode({ core, agent_signature, machine_signature: new Uint8Array(64), mac: MAC })
    const transcript = initiatorTranscript(machines, m1, m2)
    const m3 = linkM3.encode({
      agent_signature: await peer.signer.sign(LINK_DOMAINS.initiator_agent, transcript),
      machine_signature: peer.machine.sign(LINK_DOMAINS.initiator_machine, transcript),
      mac: MAC,
    })
    const ready = await this.client.linkFinish({ handle, m2, m3 })
    assert.equal(ready.agent_id, peer.signer.agentId)
    return new FakeLink(this.client, peer, ready.link, ready.decision, linkM2Core.decode(core).nonce)
  }

  /** A link that the executor opened, with this peer's answer. */
  async linkOut(peer: Party): Promise<FakeLink> {
    const { machineId } = this.client.identity
    const machines = { machine_initiator: machineId, machine_responder: peer.machine.machineId }
    const { handle, m1 } = await this.client.linkOpen({
      peer_machine: peer.machine.machineId,
      kem_public_key: randomBytes(KEM_PUBLIC_KEY_BYTES),
    })
    const core = linkM2Core.encode({
      versions: [LINK_VERSION],
      agent_public_key: peer.signer.publicKey,
      kem_ciphertext: randomBytes(KEM_CIPHERTEXT_BYTES),
      nonce: randomBytes(NONCE_BYTES),
    })
    const transcript = responderTranscript(machines, m1, core)
    const m2 = linkM2.encode({
      core,
      agent_signature: await peer.signer.sign(LINK_DOMAINS.responder_agent, transcript),
      machine_signature: peer.machine.sign(LINK_DOMAINS.responder_machine, transcript),
      mac: MAC,
    })
    const ready = await this.client.linkConfirm({ handle, m2 })
    const ours = initiatorTranscript(machines, m1, m2)
    assert.ok(verifyAgent(this.client.identity.agentPublicKey, LINK_DOMAINS.initiator_agent, ours, ready.agent_signature))
    return new FakeLink(this.client, peer, ready.link, ready.decision, null)
  }
}

export interface AskOptions {
  readonly stdin?: Uint8Array
  readonly fields?: Partial<ExecRequest>
  /** Default: the peer itself. */
  readonly signer?: AgentSigner
  readonly nonce?: Uint8Array
  /** Acknowledge output as it arrives. Default: true. */
  readonly ack?: boolean
  /** Renew the lease. Default: true. */
  readonly renew?: boolean
  /** After the Exit, report that the peer has received everything. Default: true. */
  readonly over?: boolean
}

/** One authenticated peer, as the network process holds it. */
export class FakeLink {
  readonly client: ExecutorClient
  readonly peer: Party
  readonly number: number
  readonly decision: TrustDecision
  /** Our nonce in the handshake, valid for the first request on its stream. */
  readonly handshakeNonce: Uint8Array | null

  constructor(client: ExecutorClient, peer: Party, number: number, decision: TrustDecision, handshakeNonce: Uint8Array | null) {
    this.client = client
    this.peer = peer
    this.number = number
    this.decision = decision
    this.handshakeNonce = handshakeNonce
  }

  async nonce(): Promise<Uint8Array> {
    const [nonce] = await this.client.mintNonces(this.number, 1)
    assert.ok(nonce)
    return nonce
  }

  request(nonce: Uint8Array, argv: readonly string[], fields: Partial<ExecRequest> = {}): ExecRequest {
    const { agentId, machineId } = this.client.identity
    return {
      version: 1,
      request_id: randomUUID(),
      from_agent: this.peer.signer.agentId,
      from_machine: this.peer.machine.machineId,
      to_agent: agentId,
      to_machine: machineId,
      stream_nonce: nonce,
      created_at_ms: Date.now(),
      argv: [...argv],
      stdin: null,
      timeout_ms: null,
      cwd: null,
      clamp: false,
      ...fields,
    }
  }

  async ask(argv: readonly string[], options: AskOptions = {}): Promise<ProbeRun> {
    const nonce = options.nonce ?? (await this.nonce())
    const stdin = options.stdin ? { len: options.stdin.length, pieces: pieceHashes(options.stdin) } : null
    const request = this.request(nonce, argv, { stdin, ...options.fields })
    const frame = await signedFrame(request, options.signer ?? this.peer.signer)
    return this.open(nonce, frame, request, options)
  }

  /** Resumes a run of the peer on a stream of this link, by default from its last position. */
  async resume(run: Pick<ProbeRun, 'id' | 'request' | 'position'>, from = run.position, options: AskOptions = {}): Promise<ProbeRun> {
    const nonce = options.nonce ?? (await this.nonce())
    const frame = execFrame.encode({ type: 'resume', request_id: run.id, ...from, request_nonce: run.request.stream_nonce })
    return new ProbeRun(this.client, this.client.resumeRun(this.number, nonce, frame), run.request, options, from)
  }

  /** Passes exactly these bytes to the executor. */
  open(nonce: Uint8Array, frame: Uint8Array, request: ExecRequest, options: AskOptions = {}): ProbeRun {
    return new ProbeRun(this.client, this.client.openRun(this.number, nonce, frame), request, options)
  }
}

/** A call of the network process that asks for a signature of `uptime` for a stream of this link. */
export const uptimeCall = (link: number, request_id: string): Parameters<ExecutorClient['signRequest']>[0] => ({
  link,
  request_id,
  stream_nonce: new Uint8Array(32),
  argv: ['uptime'],
  stdin: null,
  timeout_ms: null,
  cwd: null,
  clamp: false,
})

/** The `request` frame of a request. */
export const signedFrame = async (request: ExecRequest, signer: AgentSigner): Promise<Uint8Array> => {
  const body = execRequest.encode(request)
  return execFrame.encode({ type: 'request', body, signature: await signer.sign(EXEC_REQUEST_DOMAIN, body) })
}

type FrameOf<T extends ExecFrameType> = Extract<ExecFrame, { type: T }>

/** A run as its requester sees it. */
export class ProbeRun {
  readonly frames: ExecFrame[] = []
  readonly id: string
  /** Settles when the executor closes the run. */
  readonly closed: Promise<void>
  readonly #client: ExecutorClient
  readonly #port: PeerRunHandle
  readonly request: ExecRequest
  readonly #options: AskOptions
  readonly #waiting: { type: ExecFrameType; test: (frame: ExecFrame) => boolean; resolve: (frame: ExecFrame) => void }[] = []
  readonly #next: { stdout: number; stderr: number }

  constructor(client: ExecutorClient, port: PeerRunHandle, request: ExecRequest, options: AskOptions, from = { stdout: 0, stderr: 0 }) {
    this.#client = client
    this.#port = port
    this.request = request
    this.#options = options
    this.#next = { ...from }
    this.id = request.request_id
    const { promise, resolve } = Promise.withResolvers<void>()
    this.closed = promise
    const renewal = setInterval(() => this.send({ type: 'lease_renew', request_id: this.id }), 1_000)
    if (options.renew === false) clearInterval(renewal)
    port.onClosed = () => {
      clearInterval(renewal)
      resolve()
    }
    port.onFrame = (bytes) => this.#take(execFrame.decode(bytes))
  }

  /** The numbers of the next frames. */
  get position(): { stdout: number; stderr: number } {
    return { ...this.#next }
  }

  send(frame: ExecFrame): void {
    this.#port.send(execFrame.encode(frame))
  }

  sendBytes(bytes: Uint8Array): void {
    this.#port.send(bytes)
  }

  /** Drops the stream. Later frames are ignored. */
  lost(): void {
    this.#port.onFrame = () => undefined
    this.#port.lost()
  }

  over(): void {
    this.#port.over()
  }

  cancel(): void {
    this.send({ type: 'cancel', request_id: this.id })
  }

  ack(): void {
    this.send({ type: 'ack', request_id: this.id, stdin: 0, ...this.#next })
  }

  /** Waits for the first matching frame of this type, past or future. */
  async frame<T extends ExecFrameType>(type: T, test: (frame: FrameOf<T>) => boolean = () => true): Promise<FrameOf<T>> {
    const fits = (frame: ExecFrame): boolean => frame.type === type && test(frame as FrameOf<T>)
    const found = this.frames.find(fits)
    if (found !== undefined) return found as FrameOf<T>
    return new Promise((resolve) => this.#waiting.push({ type, test: fits, resolve: (frame) => resolve(frame as FrameOf<T>) }))
  }

  /** Waits for all frames and returns the verified Exit. */
  async exit(): Promise<ExecExit> {
    await this.closed
    const last = this.frames.at(-1)
    assert.equal(last?.type, 'exit')
    assert.ok(verifyAgent(this.#client.identity.agentPublicKey, EXEC_EXIT_DOMAIN, last.body, last.signature))
    const exit = execExit.decode(last.body)
    const { agentId, machineId } = this.#client.identity
    assert.deepEqual([exit.from_agent, exit.from_machine], [agentId, machineId])
    assert.equal(exit.request_id, this.id)
    assert.deepEqual(Buffer.from(exit.request_sha256), Buffer.from(sha256(execRequest.encode(this.request))))
    return exit
  }

  async denial(): Promise<string | null> {
    return (await this.exit()).denial_reason
  }

  output(stream: 'stdout' | 'stderr' = 'stdout'): Buffer {
    return Buffer.concat(this.frames.flatMap((frame) => (frame.type === stream ? [frame.data] : [])))
  }

  warnings(): string[] {
    return this.frames.flatMap((frame) => (frame.type === 'warning' ? [frame.kind] : []))
  }

  #take(frame: ExecFrame): void {
    this.frames.push(frame)
    // Acts like a requester that has received everything.
    if (frame.type === 'exit' && this.#options.over !== false) this.#port.over()
    if (frame.type === 'stdout' || frame.type === 'stderr') {
      assert.equal(frame.seq, this.#next[frame.type])
      this.#next[frame.type] += 1
      if (this.#options.ack !== false) this.ack()
    }
    for (const waiting of this.#waiting.filter(({ test }) => test(frame))) {
      this.#waiting.splice(this.#waiting.indexOf(waiting), 1)
      waiting.resolve(frame)
    }
  }
}

/** Both ends of a port with room for a few frames, as the daemon makes it. */
export const portPair = (): [executor: Duplex, network: Duplex] => duplexPair({ highWaterMark: 1024 * 1024 })
