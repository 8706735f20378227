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
import type { KeyPair } from '../identity/primitives-interface.ts'
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
import type { LinkFacts } from './link.ts'
import type { LinkServices } from './services.ts'

/** If this side delays a handshake for longer than this, the peer may give up. The peer's shortest time limit is twice this. */
export const SLOW_ANSWER_MS = 1_000

type LinkHandshakeDeps = Pick<LinkServices, 'machineKey' | 'executor' | 'primitives'> & { readonly frames: FrameStream }

/** A finished handshake, and copies of the two nonces from which the keys of its stream are derived. */
export interface Handshake {
  readonly facts: LinkFacts
  readonly responderNonce: Uint8Array
  readonly initiatorNonce: Uint8Array
}

/** The part of a handshake that runs in the network process. The executor signs and verifies. See `protocol/wire/link.ts`. */
export class LinkHandshake {
  readonly #deps: LinkHandshakeDeps
  readonly #peer: MachineId
  /** True after this side delayed the handshake by `SLOW_ANSWER_MS`. Then the peer may give up without a violation. */
  #slow = false

  /** `peer` is the machine that Noise proved at the other end of the connection. */
  constructor(deps: LinkHandshakeDeps, init: { peer: MachineId }) {
    this.#deps = deps
    this.#peer = init.peer
  }

  /** Throws `malformed`, `peer_rejected`, `upgrade`, the error that ended the stream, or the signal's reason. The stream must then be reset. */
  async initiate(signal: AbortSignal): Promise<Handshake> {
    const kem = this.#deps.primitives.kemKeygen()
    const { handle, m1 } = await this.#deps.executor.linkOpen({ peer_machine: this.#peer, kem_public_key: kem.publicKey })
    return this.#orDrop(handle, async () => {
      this.#deps.frames.send(m1)
      return this.#confirm(handle, m1, kem, await this.#deps.frames.read(signal))
    })
  }

  /** As `initiate`, for the responder. The peer has `LINK_HANDSHAKE_MS` for each message. */
  async respond(signal: AbortSignal): Promise<Handshake> {
    const m1 = await this.#hear(signal)
    const heardAt = performance.now()
    const hello = linkM1.decode(m1)
    const { ciphertext, sharedSecret } = this.#deps.primitives.kemEncapsulate(hello.kem_public_key)
    const accepted = await this.#deps.executor.linkAccept({ peer_machine: this.#peer, m1, kem_ciphertext: ciphertext })
    return this.#orDrop(accepted.handle, async () => {
      const machines: LinkMachines = { machine_initiator: this.#peer, machine_responder: this.#deps.machineKey.machineId }
      const secret = linkSecret(sharedSecret, m1, accepted.m2_core)
      const transcript = responderTranscript(machines, m1, accepted.m2_core)
      const signatures = {
        agent_signature: accepted.agent_signature,
        machine_signature: this.#deps.machineKey.sign(LINK_DOMAINS.responder_machine, transcript),
      }
      const m2 = linkM2.encode({ core: accepted.m2_core, ...signatures, mac: responderMac(secret, transcript, signatures) })
      this.#deps.frames.allowEarly(MAX_EARLY_BYTES)
      this.#deps.frames.send(m2)
      this.#slow = performance.now() - heardAt >= SLOW_ANSWER_MS
      if (!hello.versions.includes(LINK_VERSION)) {
        // M2 carries this side's version, so that the peer can report it too. The peer then ends the stream.
        await this.#hear(signal).catch(() => undefined)
        demandLinkVersion(hello.versions, this.#peerName)
      }
      return this.#finish(accepted, hello, { machines, m1, m2, secret }, await this.#hear(signal))
    })
  }

  async #confirm(handle: number, m1: Uint8Array, kem: KeyPair<'kem'>, m2: Uint8Array): Promise<Handshake> {
    const machines: LinkMachines = { machine_initiator: this.#deps.machineKey.machineId, machine_responder: this.#peer }
    const answer: LinkM2 = linkM2.decode(m2)
    const core: LinkM2Core = linkM2Core.decode(answer.core)
    demandLinkVersion(core.versions, this.#peerName)
    const secret = linkSecret(this.#deps.primitives.kemDecapsulate(kem.secret, core.kem_ciphertext), m1, answer.core)
    if (!equalBytes(answer.mac, responderMac(secret, responderTranscript(machines, m1, answer.core), answer))) throw wrongMac()
    const ready = await this.#deps.executor.linkConfirm({ handle, m2 })
    const signatures = {
      agent_signature: ready.agent_signature,
      machine_signature: this.#deps.machineKey.sign(LINK_DOMAINS.initiator_machine, initiatorTranscript(machines, m1, m2)),
    }
    const transcript = finalTranscript(machines, m1, m2, signatures)
    this.#deps.frames.send(linkM3.encode({ ...signatures, mac: initiatorMac(secret, transcript) }))
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
    // Frames after M3 wait until the executor has verified M3.
    this.#deps.frames.hold()
    const ready = await this.#deps.executor.linkFinish({ handle: accepted.handle, m2: so_far.m2, m3 })
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

  /** Reads the peer's next message. The time limit covers only this wait. If this side was slow before (`#slow`), an error is not a violation of the peer. */
  async #hear(signal: AbortSignal): Promise<Uint8Array> {
    try {
      return await this.#deps.frames.read(AbortSignal.any([signal, AbortSignal.timeout(LINK_HANDSHAKE_MS)]))
    } catch (error) {
      throw this.#slow ? error : asPeersError(error)
    }
  }

  /** If the handshake fails, the executor drops its state too. */
  async #orDrop(handle: number, work: () => Promise<Handshake>): Promise<Handshake> {
    try {
      return await work()
    } catch (error) {
      this.#deps.executor.linkDropped(handle)
      throw error
    }
  }
}

const wrongMac = (): AppError =>
  new AppError('malformed', 'a handshake message does not confirm the keys', { data: { offence: 'bad_signature' } })

/** Converts any error that ended a handshake to one of the error table. */
export const asLinkError = (error: unknown): AppError => {
  if (isAppError(error)) return error
  if (error instanceof Error && error.name === 'TimeoutError')
    return new AppError('timeout', 'the peer did not answer in time', { cause: error })
  return new AppError('peer_rejected', `the peer ended it: ${errorText(error)}`, { cause: error })
}

/** As `asLinkError`, with the violation `handshake_failed`, for a peer that ended the handshake or did not answer. */
const asPeersError = (error: unknown): AppError => {
  const { code, message } = asLinkError(error)
  return new AppError(code, message, { cause: error, data: { offence: 'handshake_failed' } })
}

/** Ends a quiet connection on which a handshake timed out, because the peer may be gone. The next attempt then dials again. */
export const abortUnanswered = (connection: MeshConnection, reason: AppError): void => {
  if (reason.code === 'timeout' && connection.quiet) connection.abort(reason)
}
