import { randomBytes } from 'node:crypto'
import type { TestContext } from 'node:test'

import type { Connection } from '@libp2p/interface'

import { systemClock } from '../../src/base/clock.ts'
import { FrameStream } from '../../src/links/frame-stream.ts'
import { LinkHandshake } from '../../src/links/link-handshake.ts'
import type { LinkExecutor } from '../../src/links/link.ts'
import { ExecutorLinks } from '../../src/executor/links/executor-links.ts'
import { newLife, Nonces } from '../../src/executor/links/nonces.ts'
import type { agentSignerOf } from '../../src/identity/agent-key.ts'
import { machineKeyOf, type MachineKey } from '../../src/identity/machine-key.ts'
import { primitives } from '../../src/identity/primitives.ts'
import { MeshStream } from '../../src/mesh/stream.ts'
import { MAX_LINK_FRAME } from '../../src/protocol/limits/wire.ts'
import { LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import { signalOf, type Dialled } from './hostile-link.ts'
import { UnlistedPeer } from './unlisted-peer.ts'

/** One machine of an agent that creates machine keys, connections and links freely. */
export class LinkedMachine {
  readonly key: MachineKey
  readonly #peer: UnlistedPeer
  readonly #port: LinkExecutor

  private constructor(peer: UnlistedPeer, key: MachineKey, signer: ReturnType<typeof agentSignerOf>) {
    this.#peer = peer
    this.key = key
    const links = new ExecutorLinks(
      {
        signatures: { sign: signer.sign, limited: signer } as never,
        trustEvaluator: { decide: () => 'accept' } as never,
        nonces: new Nonces({ life: newLife() }),
        clock: systemClock,
      },
      { agentId: signer.agentId, agentPublicKey: signer.publicKey, machineId: key.machineId },
    )
    const port: Pick<LinkExecutor, 'linkOpen' | 'linkConfirm' | 'linkDropped'> = {
      linkOpen: async ({ peer_machine, kem_public_key }) => links.open(peer_machine, kem_public_key),
      linkConfirm: async ({ handle, m2 }) => {
        const { link, agentSignature } = await links.confirm(handle, m2)
        return { link: link.number, agent_id: link.agentId, decision: 'accept', agent_signature: agentSignature } as never
      },
      linkDropped: () => undefined,
    }
    this.#port = port as LinkExecutor
  }

  static async start(t: Pick<TestContext, 'after'>, signer: ReturnType<typeof agentSignerOf>): Promise<LinkedMachine> {
    const seed = randomBytes(32)
    return new LinkedMachine(await UnlistedPeer.start(t, seed), machineKeyOf(seed), signer)
  }

  async connect(to: Dialled): Promise<Connection> {
    return (await this.#peer.connect(to.node.addresses()[0]!)).connection
  }

  /** Opens a link over this connection. */
  async link(connection: Connection, to: Dialled): Promise<void> {
    const stream = new MeshStream(
      { stream: await connection.newStream(LINK_PROTOCOL), connection: { noteHeard: () => undefined } },
      { early: false },
    )
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    const components = { executor: this.#port, machineKey: this.key, primitives: primitives(), frames }
    await new LinkHandshake(components, { peer: to.machineId }).initiate(signalOf())
  }
}
