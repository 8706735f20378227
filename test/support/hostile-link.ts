import { FrameStream } from '../../src/links/frame-stream.ts'
import { LinkHandshake, type Handshake } from '../../src/links/link-handshake.ts'
import { primitives } from '../../src/identity/primitives.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import type { MeshStream } from '../../src/mesh/stream.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { MAX_LINK_FRAME } from '../../src/protocol/limits/wire.ts'
import { LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import type { Peer } from './peer.ts'

/** Alters the n-th frame that is sent or received. */
export interface Tamper {
  sent?(frame: Uint8Array, index: number): Uint8Array
  received?(frame: Uint8Array, index: number): Uint8Array
}

class TamperedFrames extends FrameStream {
  readonly #tamper: Tamper
  #sent = 0
  #received = 0

  constructor(components: { stream: MeshStream }, tamper: Tamper) {
    super(components, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    this.#tamper = tamper
  }

  override send(...payloads: readonly Uint8Array[]): boolean {
    return super.send(...payloads.map((payload) => this.#tamper.sent?.(payload, this.#sent++) ?? payload))
  }

  override async read(signal: AbortSignal): Promise<Uint8Array> {
    const frame = await super.read(signal)
    return this.#tamper.received?.(frame, this.#received++) ?? frame
  }
}

export const signalOf = (ms = 20_000): AbortSignal => AbortSignal.timeout(ms)

/** The part of a peer that a dial needs. */
export interface Dialled {
  readonly machineId: MachineId
  readonly node: { addresses(): string[] }
}

export const connect = async (from: Peer, to: Dialled): Promise<MeshConnection> =>
  from.node.dial(to.machineId, to.node.addresses(), signalOf())

/** Performs a handshake of `from` with `to` on a separate stream, which ends if the handshake fails. */
export const handshake = async (
  from: Peer,
  to: Dialled,
  tamper: Tamper = {},
  parts: Partial<ConstructorParameters<typeof LinkHandshake>[0]> = {},
): Promise<Handshake & { frames: FrameStream; connection: MeshConnection }> => {
  const connection = await connect(from, to)
  const stream = await connection.openStream(LINK_PROTOCOL, signalOf())
  const frames = new TamperedFrames({ stream }, tamper)
  const components = { executor: from.executorClient, machineKey: from.machineKey, primitives: primitives(), ...parts, frames }
  try {
    const result = await new LinkHandshake(components, { peer: to.machineId }).initiate(signalOf())
    return { ...result, frames, connection }
  } catch (error) {
    frames.abort(error as Error)
    throw error
  }
}

/** The same bytes with one bit flipped. */
export const flip = (bytes: Uint8Array, at = 0): Uint8Array => {
  const copy = Uint8Array.from(bytes)
  copy[at] = (copy[at] ?? 0) ^ 1
  return copy
}
