import { setTimeout as sleep } from 'node:timers/promises'

import { agentSignerOf } from '../src/identity/agent-key.ts'
import { randomBytes } from '../src/identity/hash.ts'
import { pauseMs } from '../src/mesh/beacon.ts'
import { presence } from '../src/protocol/wire/card.ts'
import { openGossip, rightlySigned, UnlistedPeer } from '../test/support/unlisted-peer.ts'
import { startMeshPart } from './mesh-part.ts'

/** Input of the process that simulates the other daemons. It is the only argument. */
export interface AroundInit {
  /** Number of real daemons. Each is a direct peer of the measured node. */
  readonly neighbours: number
  /** Number of simulated daemons behind them. They only send presences, with real keys, signatures and sizes. */
  readonly beyond: number
}

class Beyond {
  readonly #agentId = agentSignerOf(randomBytes(32)).agentId
  readonly #seed = randomBytes(32)
  readonly #since = Date.now()
  #said = 0

  /** The gossip batch with its presence message. */
  async say(holdsMs: number): Promise<Uint8Array> {
    const said = {
      version: 1 as const,
      agent_id: this.#agentId,
      card_issued_at_ms: this.#since,
      said_at_ms: Date.now(),
      holds_secs: Math.ceil(holdsMs / 1000),
      addresses: ['/ip4/192.0.2.7/tcp/5483'],
    }
    return rightlySigned(this.#seed, this.#said++, presence.encode(said))
  }
}

/** Prints the addresses of the real daemons, and runs until its input ends. */
const main = async ({ neighbours, beyond }: AroundInit): Promise<void> => {
  const endings: (() => unknown)[] = []
  const parts: Awaited<ReturnType<typeof startMeshPart>>[] = []
  for (let i = 0; i < neighbours; i++) parts.push(await startMeshPart(parts.flatMap(({ node }) => node.addresses())))
  const streams: Awaited<ReturnType<typeof openGossip>>[] = []
  for (const { node } of parts) {
    const stranger = await UnlistedPeer.start({ after: (ending: unknown) => void endings.push(ending as () => unknown) })
    streams.push(await openGossip(await stranger.connect(node.addresses()[0]!)))
  }
  process.stdout.write(`${JSON.stringify(parts.flatMap(({ node }) => node.addresses()))}\n`)
  const far = Array.from({ length: beyond }, () => new Beyond())
  const pause = pauseMs(neighbours + beyond)
  const ended = new AbortController()
  process.stdin.once('end', () => ended.abort()).resume()
  for (let turn = 0; !ended.signal.aborted; turn++) {
    const one = far[turn % Math.max(1, far.length)]
    if (one !== undefined) streams[turn % streams.length]!.send(await one.say(3 * pause))
    await sleep(far.length === 0 ? 1_000 : (pause / far.length) * (0.5 + Math.random()))
  }
  for (const ending of endings) await ending()
  for (const { stop } of parts) await stop()
}

await main(JSON.parse(process.argv[2] ?? '') as AroundInit)
process.exit(0)
