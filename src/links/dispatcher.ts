import { AppError, asError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { type RequestId, shortId } from '../protocol/ids.ts'
import { BODY_PREFIX_BYTES } from '../protocol/wire/dm.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { isAccepted } from './link.ts'

/** Handles one body, prefix included. If it throws, the channel ends. */
export type BodyHandler = (channel: DmChannel, requestId: RequestId, body: Uint8Array) => void

/** Passes each body of a channel that a peer opened to the handler of its prefix. A body with an unknown prefix is counted and dropped. It also ends the channel of an agent that the trust rules do not accept. */
export class Dispatcher {
  readonly #deps: { readonly counters: DmCounters; readonly log: Logger }
  readonly #routes = new Map<string, BodyHandler>()

  constructor(deps: { readonly counters: DmCounters; readonly log: Logger }) {
    this.#deps = deps
  }

  /** Passes the bodies of this channel to the handlers. The channel must not listen yet. */
  attach(channel: DmChannel): void {
    channel.onBody = (requestId, body) => this.#dispatch(channel, requestId, body)
  }

  /** Registers the handler of a prefix of `BODY_PREFIX_BYTES`. */
  route(prefix: Uint8Array, handler: BodyHandler): void {
    const key = keyOf(prefix)
    if (prefix.length !== BODY_PREFIX_BYTES || this.#routes.has(key)) throw new TypeError('a prefix has twelve bytes and one handler')
    this.#routes.set(key, handler)
  }

  #dispatch(channel: DmChannel, requestId: RequestId, body: Uint8Array): void {
    const handler = this.#routes.get(keyOf(body.subarray(0, BODY_PREFIX_BYTES)))
    if (handler === undefined) {
      this.#deps.counters.add('unknown_prefix')
      if (!isAccepted(channel.link.decision)) channel.abort(new AppError('rate_limited', 'a body without a handler'))
      return
    }
    try {
      handler(channel, requestId, body)
    } catch (error) {
      this.#deps.log.debug(
        { agent: shortId(channel.link.agentId), request_id: requestId, err: errorText(error) },
        'an invalid body closed its channel',
      )
      channel.abort(asError(error))
    }
  }
}

const keyOf = (prefix: Uint8Array): string => Buffer.from(prefix.buffer, prefix.byteOffset, prefix.byteLength).toString('latin1')
