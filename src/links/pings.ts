import { unlessAborted } from '../base/abort.ts'
import type { Clock } from '../base/clock.ts'
import { AppError, asError } from '../base/errors.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { Pinged } from '../protocol/api-answers.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { PINGS_PER_SECOND, PING_ANSWER_MS, PING_BURST } from '../protocol/limits/wire.ts'
import { BODY_PREFIX_BYTES, PING_PREFIX, PONG_PREFIX, directPing, directPong } from '../protocol/wire/dm.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import type { Dispatcher } from './dispatcher.ts'
import { type LinkExecutor, isAccepted } from './link.ts'
import type { Links } from './links.ts'

/** Pings of ours under way at once. */
export const MAX_PINGS = 64

export interface PingsComponents {
  readonly links: Pick<Links, 'openChannel' | 'penalise'>
  readonly dispatcher: Dispatcher
  readonly port: Pick<LinkExecutor, 'identity'>
  readonly counters: DmCounters
  readonly clock: Clock
}

/** Whether an agent is there, how far away, and by which way. Strangers are not answered. */
export class Pings implements Startable {
  readonly #parts: PingsComponents
  readonly #version: string
  readonly #rate: RateLimit
  #asking = 0

  constructor(components: PingsComponents, init: { readonly version: string }) {
    this.#parts = components
    this.#version = init.version
    this.#rate = new RateLimit(components, { burst: PING_BURST, perSecond: PINGS_PER_SECOND })
  }

  start(): void {
    this.#parts.dispatcher.route(PING_PREFIX, (channel, requestId, body) => this.#answer(channel, requestId, body))
  }

  stop(): void {}

  /** Errors: what dialling throws, `peer_rejected` (no answer), `timeout`, `rate_limited`. */
  async ping(agentId: AgentId, signal: AbortSignal): Promise<Pinged> {
    if (this.#asking >= MAX_PINGS) throw new AppError('rate_limited', `${MAX_PINGS} agents are being pinged`)
    this.#asking += 1
    try {
      return agentId === this.#parts.port.identity.agentId ? this.#own() : await this.#ping(agentId, signal)
    } finally {
      this.#asking -= 1
    }
  }

  #own(): Pinged {
    const { agentId: agent_id, machineId: machine_id } = this.#parts.port.identity
    const versions = { version: this.#version, own_version: this.#version }
    return { agent_id, machine_id, decision: 'accept', path: null, connect_ms: 0, rtt_ms: 0, ...versions, clock_ahead_ms: 0 }
  }

  async #ping(agentId: AgentId, signal: AbortSignal): Promise<Pinged> {
    const { clock, links } = this.#parts
    const begun = clock.monotonic()
    const channel = await links.openChannel(agentId, signal)
    try {
      signal.throwIfAborted()
      const { link } = channel
      const requestId = newRequestId()
      const answer = pongOn(channel, requestId, AbortSignal.any([signal, AbortSignal.timeout(PING_ANSWER_MS)]))
      // When what follows throws it is not awaited.
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

  /** One for each channel, so that a peer that does not read piles up nothing here. */
  #answer(channel: DmChannel, requestId: RequestId, body: Uint8Array): void {
    const { clock, counters, links } = this.#parts
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

/** To a hundredth of a millisecond. */
const rounded = (ms: number): number => Math.round(ms * 100) / 100

const UNANSWERED =
  'the agent was reached and does not answer: it does not accept this agent on this machine, or was asked more than ten times a second'

/** Rejects when the channel ends, time is up, or something else comes back. */
const pongOn = async (channel: DmChannel, requestId: RequestId, signal: AbortSignal): Promise<ReturnType<typeof directPong.decode>> => {
  const { promise, resolve, reject } = Promise.withResolvers<ReturnType<typeof directPong.decode>>()
  channel.onBody = (id, body) => {
    try {
      const prefix = Buffer.from(body.subarray(0, BODY_PREFIX_BYTES))
      if (id !== requestId || !prefix.equals(PONG_PREFIX)) throw new AppError('malformed', 'not the answer to this ping')
      resolve(directPong.decode(body.subarray(BODY_PREFIX_BYTES)))
    } catch (error) {
      channel.abort(asError(error))
    }
  }
  channel.onClosed = (error) => reject(error ?? new AppError('peer_rejected', UNANSWERED))
  return unlessAborted(promise, signal).catch((error: unknown) => {
    throw error === signal.reason ? new AppError('timeout', 'the agent did not answer in time', { cause: error }) : error
  })
}
