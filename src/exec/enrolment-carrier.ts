import { AppError, asError, errorText, isAppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { EnrolAsk } from '../executor-api/messages.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { DmChannel } from '../links/channel.ts'
import type { Dispatcher } from '../links/dispatcher.ts'
import type { Link } from '../links/link.ts'
import type { Links } from '../links/links.ts'
import { replyOn } from '../links/messages.ts'
import { triedText } from '../protocol/denial-text.ts'
import { type RequestId, shortId } from '../protocol/ids.ts'
import { ENROL_ATTEMPT_MS } from '../protocol/limits/enrolment.ts'
import { BODY_PREFIX_BYTES } from '../protocol/wire/dm.ts'
import { ENROL_PREFIX, type EnrolFrame, enrolFrame } from '../protocol/wire/enrolment.ts'

/** Requests of hosts that the executor process answers at once. A host repeats one that was dropped. */
const MAX_ENROLLING = 64

export interface EnrolmentCarrierDeps {
  readonly dispatcher: Pick<Dispatcher, 'route'>
  readonly executor: Pick<ExecutorClient, 'enrolAnswer' | 'enrolFailed' | 'enrolRequest' | 'enrolSign' | 'onEnrolAsk'>
  readonly links: Pick<Links, 'openChannelAt' | 'penalise'>
  readonly log: Logger
  /** Addresses of this daemon for others. */
  addresses(): readonly string[]
}

/** An error that names each address and its reason once, for a line that repeats. */
const shortened = (error: unknown): unknown => {
  const tried: unknown = isAppError(error, 'peer_unreachable') ? error.data['addresses'] : null
  return Array.isArray(tried) && tried.length > 0
    ? new AppError('peer_unreachable', [...new Set(tried.map(triedText))].join('; '), { cause: error })
    : error
}

/** True if the peer has no valid token. A bearer of one may ask again, for example after a restart. */
const isGuess = (frame: EnrolFrame): boolean =>
  frame.type === 'refused' && (frame.reason === 'unknown_key' || frame.reason === 'wrong_proof')

const bodyOf = (frame: Uint8Array): Uint8Array => Buffer.concat([ENROL_PREFIX, frame])

/** Carries requests for enrolment and their answers. It has no secret and decides nothing. */
export class EnrolmentCarrier implements Startable {
  readonly #deps: EnrolmentCarrierDeps
  readonly #stop = new AbortController()
  #enrolling = 0
  #unsubscribe: () => void = () => undefined

  constructor(deps: EnrolmentCarrierDeps) {
    this.#deps = deps
  }

  start(): void {
    const { dispatcher, executor } = this.#deps
    dispatcher.route(ENROL_PREFIX, (channel, requestId, body) => void this.#answer(channel, requestId, body))
    this.#unsubscribe = executor.onEnrolAsk((ask) => void this.#ask(ask))
  }

  stop(): void {
    this.#unsubscribe()
    this.#stop.abort(new AppError('shutting_down'))
  }

  /** Sends the request of the executor to the operator, and the answer back. */
  async #ask({ ask, agent_id: agentId, machine_id: machineId, addresses }: EnrolAsk): Promise<void> {
    const { executor, links } = this.#deps
    const signal = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(ENROL_ATTEMPT_MS)])
    let channel: DmChannel | null = null
    try {
      channel = await links.openChannelAt(agentId, { machineId, addresses }, signal)
      const requestId = newRequestId()
      const answer = replyOn(channel, requestId, { prefix: ENROL_PREFIX, decode: (bytes) => new Uint8Array(bytes) }, NO_ANSWER, signal)
      // If the code below throws, `answer` is never awaited.
      answer.catch(() => undefined)
      const { frame } = await executor.enrolSign({
        link: channel.link.number,
        ask,
        request_id: requestId,
        stream_nonce: channel.streamNonce,
        addresses: [...this.#deps.addresses()],
      })
      channel.send(requestId, bodyOf(frame))
      executor.enrolAnswer(ask, await answer)
    } catch (error) {
      executor.enrolFailed(ask, shortened(error))
    } finally {
      void channel?.close()
    }
  }

  /** Answers one request per channel, so that unread answers cannot accumulate. */
  async #answer(channel: DmChannel, requestId: RequestId, body: Uint8Array): Promise<void> {
    const { executor, log } = this.#deps
    channel.onBody = () => channel.abort(new AppError('malformed', 'a second request for enrolment on one stream'))
    if (this.#enrolling >= MAX_ENROLLING)
      return this.#drop(channel.link, channel, new AppError('rate_limited', 'too many hosts enrol at once'))
    this.#enrolling += 1
    try {
      const request = { link: channel.link.number, stream_nonce: channel.streamNonce, frame: body.subarray(BODY_PREFIX_BYTES) }
      const { frame } = await executor.enrolRequest(request)
      channel.send(requestId, bodyOf(frame))
      if (isGuess(enrolFrame.decode(frame))) this.#deps.links.penalise(channel.link, 'denied')
      await channel.close()
    } catch (error) {
      log.debug({ agent: shortId(channel.link.agentId), err: errorText(error) }, 'a request for enrolment was not answered')
      this.#drop(channel.link, channel, asError(error))
    } finally {
      this.#enrolling -= 1
    }
  }

  #drop(link: Link, channel: DmChannel, reason: Error): void {
    this.#deps.links.penalise(link, 'denied')
    channel.abort(reason)
  }
}

const NO_ANSWER = {
  wrong: 'not the answer to this request for enrolment',
  ended: new AppError('peer_unreachable', 'the operator ended the stream without an answer'),
  late: 'the operator gave no answer in time',
} as const
