import { AppError } from '../base/errors.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { Pinged } from '../protocol/api-answers.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { PINGS_PER_SECOND, PING_ANSWER_MS, PING_BURST } from '../protocol/limits/wire.ts'
import { BODY_PREFIX_BYTES, PING_PREFIX, PONG_PREFIX, directPing, directPong } from '../protocol/wire/dm.ts'
import type { DmChannel } from './channel.ts'
import { isAccepted } from './link.ts'
import type { Links } from './links.ts'
import { replyOn } from './messages.ts'
import type { LinkServices } from './services.ts'

/** Pings that this daemon may have under way at once. */
export const MAX_PINGS = 64

type PingsDeps = Pick<LinkServices, 'clock' | 'counters' | 'dispatcher' | 'executor'> & {
  readonly links: Pick<Links, 'openChannel' | 'penalise'>
}

/** Pings agents, and answers the pings of accepted agents only. */
export class Pings implements Startable {
  readonly #deps: PingsDeps
  readonly #version: string
  readonly #rate: RateLimit
  #asking = 0

  constructor(deps: PingsDeps, init: { readonly version: string }) {
    this.#deps = deps
    this.#version = init.version
    this.#rate = new RateLimit(deps, { burst: PING_BURST, perSecond: PINGS_PER_SECOND })
  }

  start(): void {
    this.#deps.dispatcher.route(PING_PREFIX, (channel, requestId, body) => this.#answer(channel, requestId, body))
  }

  stop(): void {}

  /** Measures round trip, route, versions and clock difference. Throws dial errors, `peer_rejected` (no answer), `timeout`, `rate_limited`. */
  async ping(agentId: AgentId, signal: AbortSignal): Promise<Pinged> {
    if (this.#asking >= MAX_PINGS) throw new AppError('rate_limited', `${MAX_PINGS} agents are being pinged`)
    this.#asking += 1
    try {
      return agentId === this.#deps.executor.identity.agentId ? this.#own() : await this.#ping(agentId, signal)
    } finally {
      this.#asking -= 1
    }
  }

  #own(): Pinged {
    const { agentId: agent_id, machineId: machine_id } = this.#deps.executor.identity
    const versions = { version: this.#version, own_version: this.#version }
    return { agent_id, machine_id, decision: 'accept', path: null, connect_ms: 0, rtt_ms: 0, ...versions, clock_ahead_ms: 0 }
  }

  async #ping(agentId: AgentId, signal: AbortSignal): Promise<Pinged> {
    const { clock, links } = this.#deps
    const begun = clock.monotonic()
    const channel = await links.openChannel(agentId, signal)
    try {
      signal.throwIfAborted()
      const { link } = channel
      const requestId = newRequestId()
      const errors = {
        wrong: 'not the answer to this ping',
        ended: new AppError('peer_rejected', UNANSWERED),
        late: 'the agent did not answer in time',
      }
      const limit = AbortSignal.any([signal, AbortSignal.timeout(PING_ANSWER_MS)])
      const answer = replyOn(channel, requestId, { prefix: PONG_PREFIX, decode: directPong.decode }, errors, limit)
      // If the code below throws, `answer` is never awaited.
      answer.catch(() => undefined)
      const [sent, sentAt] = [clock.monotonic(), clock.now()]
      channel.send(requestId, Buffer.concat([PING_PREFIX, directPing.encode({ program_version: this.#version })]))
      const { program_version: version, received_at_ms } = await answer
      const rtt = clock.monotonic() - sent
      return {
        agent_id: link.agentId,
        machine_id: link.machineId,
        decision: link.decision,
        path: { ...link.path, direct: link.path.relay === null },
        connect_ms: rounded(sent - begun),
        rtt_ms: rounded(rtt),
        version,
        own_version: this.#version,
        clock_ahead_ms: Math.round(received_at_ms - sentAt - rtt / 2),
      }
    } finally {
      void channel.close()
    }
  }

  /** Answers one ping per channel, so that unread answers cannot accumulate. */
  #answer(channel: DmChannel, requestId: RequestId, body: Uint8Array): void {
    const { clock, counters, links } = this.#deps
    directPing.decode(body.subarray(BODY_PREFIX_BYTES))
    channel.onBody = () => undefined
    const accepted = isAccepted(channel.link.decision)
    if (accepted && this.#rate.allows(channel.link.agentId)) {
      counters.add('pings_answered')
      const pong = directPong.encode({ program_version: this.#version, received_at_ms: clock.now() })
      channel.send(requestId, Buffer.concat([PONG_PREFIX, pong]))
    } else counters.add('pings_ignored')
    void channel.close()
    if (!accepted) links.penalise(channel.link, 'denied')
  }
}

const rounded = (ms: number): number => Math.round(ms * 100) / 100

const UNANSWERED =
  'the agent was reached but does not answer: it does not accept this agent on this machine, or received more than ten pings a second'
