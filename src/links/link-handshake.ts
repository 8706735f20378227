import { AppError, errorText, isAppError } from '../base/errors.ts'
import { equalBytes } from '../identity/hash.ts'
import {
  type LinkMachines,
  finalTranscript,
  initiatorMac,
  initiatorTranscript,
  linkSecret,
  responderMac,
  responderTranscript,
} from '../identity/link-crypto.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { KeyPair, Primitives } from '../identity/primitives-interface.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_VERSION, MAX_EARLY_BYTES } from '../protocol/limits/wire.ts'
import {
  LINK_DOMAINS,
  type LinkM1,
  type LinkM2,
  type LinkM2Core,
  demandLinkVersion,
  linkM1,
  linkM2,
  linkM2Core,
  linkM3,
} from '../protocol/wire/link.ts'
import type { FrameStream } from './frame-stream.ts'
import type { LinkFacts, LinkExecutor } from './link.ts'

/** A peer that we let wait in a handshake for so long may give up: half of the shortest time that ours wait. */
export const SLOW_ANSWER_MS = 1_000

export interface HandshakeComponents {
  readonly port: LinkExecutor
  readonly machineKey: MachineKey
  readonly primitives: Primitives
}

/** A finished handshake and the two nonces that key its own stream; copies, since what was decoded is a view of a whole message. */
export interface Handshake {
  readonly facts: LinkFacts
  readonly responderNonce: Uint8Array
  readonly initiatorNonce: Uint8Array
}

/** The network half of one handshake; the executor's half signs and verifies. See `protocol/link.ts`. */
export class LinkHandshake {
  readonly #port: LinkExecutor
  readonly #machineKey: MachineKey
  readonly #primitives: Primitives
  readonly #frames: FrameStream
  readonly #peer: MachineId
  /** True once our own part took `SLOW_ANSWER_MS`, after which the peer may have given up. */
  #slow = false

  /** `peer`: the machine that Noise proved on the other end of this stream's connection. */
  constructor(components: HandshakeComponents & { frames: FrameStream }, init: { peer: MachineId }) {
    this.#port = components.port
    this.#machineKey = components.machineKey
    this.#primitives = components.primitives
    this.#frames = components.frames
    this.#peer = init.peer
  }

  /** Throws `malformed`, `peer_rejected` or `upgrade`, what ended the stream, or the signal's reason; the caller resets the stream. */
  async initiate(signal: AbortSignal): Promise<Handshake> {
    const kem = this.#primitives.kemKeygen()
    const { handle, m1 } = await this.#port.linkOpen({ peer_machine: this.#peer, kem_public_key: kem.publicKey })
    return this.#orDrop(handle, async () => {
      this.#frames.send(m1)
      return this.#confirm(handle, m1, kem, await this.#frames.read(signal))
    })
  }

  /** As `initiate`, for the side that was called; the peer has `LINK_HANDSHAKE_MS` for each of its messages. */
  async respond(signal: AbortSignal): Promise<Handshake> {
    const m1 = await this.#hear(signal)
    const heardAt = performance.now()
    const hello = linkM1.decode(m1)
    const { ciphertext, sharedSecret } = this.#primitives.kemEncapsulate(hello.kem_public_key)
    const accepted = await this.#port.linkAccept({ peer_machine: this.#peer, m1, kem_ciphertext: ciphertext })
    return this.#orDrop(accepted.handle, async () => {
      const machines: LinkMachines = { machine_initiator: this.#peer, machine_responder: this.#machineKey.machineId }
      const secret = linkSecret(sharedSecret, m1, accepted.m2_core)
      const transcript = responderTranscript(machines, m1, accepted.m2_core)
      const signatures = {
        agent_signature: accepted.agent_signature,
        machine_signature: this.#machineKey.sign(LINK_DOMAINS.responder_machine, transcript),
      }
      const m2 = linkM2.encode({ core: accepted.m2_core, ...signatures, mac: responderMac(secret, transcript, signatures) })
      this.#frames.allowEarly(MAX_EARLY_BYTES)
      this.#frames.send(m2)
      this.#slow = performance.now() - heardAt >= SLOW_ANSWER_MS
      if (!hello.versions.includes(LINK_VERSION)) {
        // M2 carries our version, so the peer can report it too. The peer then ends the stream.
        await this.#hear(signal).catch(() => undefined)
        demandLinkVersion(hello.versions, this.#peerName)
      }
      return this.#finish(accepted, hello, { machines, m1, m2, secret }, await this.#hear(signal))
    })
  }

  async #confirm(handle: number, m1: Uint8Array, kem: KeyPair<'kem'>, m2: Uint8Array): Promise<Handshake> {
    const machines: LinkMachines = { machine_initiator: this.#machineKey.machineId, machine_responder: this.#peer }
    const answer: LinkM2 = linkM2.decode(m2)
    const core: LinkM2Core = linkM2Core.decode(answer.core)
    demandLinkVersion(core.versions, this.#peerName)
    const secret = linkSecret(this.#primitives.kemDecapsulate(kem.secret, core.kem_ciphertext), m1, answer.core)
    if (!equalBytes(answer.mac, responderMac(secret, responderTranscript(machines, m1, answer.core), answer))) throw wrongMac()
    const ready = await this.#port.linkConfirm({ handle, m2 })
    const signatures = {
      agent_signature: ready.agent_signature,
      machine_signature: this.#machineKey.sign(LINK_DOMAINS.initiator_machine, initiatorTranscript(machines, m1, m2)),
    }
    const transcript = finalTranscript(machines, m1, m2, signatures)
    this.#frames.send(linkM3.encode({ ...signatures, mac: initiatorMac(secret, transcript) }))
    return {
      facts: {
        agentId: ready.agent_id,
        agentPublicKey: Uint8Array.from(core.agent_public_key),
        number: ready.link,
        decision: ready.decision,
        initiator: true,
        secret,
        transcript,
      },
      responderNonce: Uint8Array.from(core.nonce),
      initiatorNonce: linkM1.decode(m1).nonce,
    }
  }

  async #finish(
    accepted: { handle: number; m2_core: Uint8Array },
    hello: LinkM1,
    so_far: { machines: LinkMachines; m1: Uint8Array; m2: Uint8Array; secret: Uint8Array },
    m3: Uint8Array,
  ): Promise<Handshake> {
    const last = linkM3.decode(m3)
    const transcript = finalTranscript(so_far.machines, so_far.m1, so_far.m2, last)
    if (!equalBytes(last.mac, initiatorMac(so_far.secret, transcript))) throw wrongMac()
    // Frames behind M3 wait until the executor has verified M3.
    this.#frames.hold()
    const ready = await this.#port.linkFinish({ handle: accepted.handle, m2: so_far.m2, m3 })
    return {
      facts: {
        agentId: ready.agent_id,
        agentPublicKey: Uint8Array.from(hello.agent_public_key),
        number: ready.link,
        decision: ready.decision,
        initiator: false,
        secret: so_far.secret,
        transcript,
      },
      responderNonce: Uint8Array.from(linkM2Core.decode(accepted.m2_core).nonce),
      initiatorNonce: hello.nonce,
    }
  }

  get #peerName(): string {
    return `machine ${shortId(this.#peer)}`
  }

  /** The peer's next message. Its time runs only while we wait for it, and an end is no offence where our own part took long (`#slow`): a slow executor of ours is not held against the peer. */
  async #hear(signal: AbortSignal): Promise<Uint8Array> {
    try {
      return await this.#frames.read(AbortSignal.any([signal, AbortSignal.timeout(LINK_HANDSHAKE_MS)]))
    } catch (error) {
      throw this.#slow ? error : asPeersError(error)
    }
  }

  /** A handshake that fails is forgotten by the executor too. */
  async #orDrop(handle: number, work: () => Promise<Handshake>): Promise<Handshake> {
    try {
      return await work()
    } catch (error) {
      this.#port.linkDropped(handle)
      throw error
    }
  }
}

const wrongMac = (): AppError =>
  new AppError('malformed', 'a handshake message does not confirm the keys', { data: { offence: 'bad_signature' } })

/** Whatever ended a handshake, in the words of the error table. */
export const asLinkError = (error: unknown): AppError => {
  if (isAppError(error)) return error
  if (error instanceof Error && error.name === 'TimeoutError')
    return new AppError('timeout', 'the peer did not answer in time', { cause: error })
  return new AppError('peer_rejected', `the peer ended it: ${errorText(error)}`, { cause: error })
}

/** As `asLinkError`, marked as the offence `handshake_failed`: the peer had not been kept waiting, and ended or did not answer. */
const asPeersError = (error: unknown): AppError => {
  const { code, message } = asLinkError(error)
  return new AppError(code, message, { cause: error, data: { offence: 'handshake_failed' } })
}

/** A peer that leaves a handshake unanswered may be gone without our knowing: the next attempt dials anew. */
export const giveUpUnanswered = (connection: MeshConnection, reason: AppError): void => {
  if (reason.code === 'timeout' && connection.quiet) connection.abort(reason)
}
