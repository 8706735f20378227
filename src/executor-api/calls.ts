import { AppError, errorCodeOf, isAppError } from '../base/errors.ts'
import { MAX_SEALED_FRAME, MAX_TEXT } from '../protocol/limits/wire.ts'
import { ASKED_ANSWERS, type ToExecutor, type ToNetwork } from './messages.ts'

/** The reply type of each call. */
export const ANSWERS = {
  hello: 'welcome',
  link_open: 'link_opened',
  link_confirm: 'link_ready',
  link_accept: 'link_accepted',
  link_finish: 'link_ready',
  mint_nonces: 'nonces',
  sign_request: 'signed',
  sign_rules_request: 'signed',
  sign_approval_request: 'signed',
  sign_card: 'signed',
  operate: 'result',
  query: 'result',
  revocations: 'result',
  sign_detach_request: 'signed',
  sign_detached_ask: 'signed',
  sign_terminal_request: 'signed',
  sign_terminal_input: 'signed',
  evaluate_trust: 'result',
  prove_fanout: 'result',
  fanout_over: 'result',
  settings: 'settings',
  enrol_sign: 'enrol_frame',
  enrol_request: 'enrol_frame',
  ...ASKED_ANSWERS,
} as const satisfies Partial<Record<ToExecutor['type'], ToNetwork['type']>>
type ReplyTypes = typeof ANSWERS
export type CallType = keyof ReplyTypes
type WithoutId<T> = T extends unknown ? Omit<T, 'type' | 'id'> : never
export type Arguments<C extends CallType> = WithoutId<Extract<ToExecutor, { type: C }>>
export type ReplyOf<C extends CallType> = WithoutId<Extract<ToNetwork, { type: ReplyTypes[C] }>>

/** Subscribers to one kind of event. */
export class Listeners<Args extends readonly unknown[]> {
  readonly #all = new Set<(...args: Args) => void>()

  /** Adds a listener. Returns a function that removes it. */
  readonly add = (listener: (...args: Args) => void): (() => void) => {
    this.#all.add(listener)
    return () => void this.#all.delete(listener)
  }

  emit(...args: Args): void {
    for (const listener of this.#all) listener(...args)
  }
}

/** Bounds an error to the size of a message. An error that is not in the error table is `internal`. */
export const boundedError = (error: unknown): AppError => {
  if (!isAppError(error)) return new AppError('internal', undefined, { cause: error })
  const { code, message, data } = error
  const isLong = Buffer.byteLength(JSON.stringify(data)) > MAX_SEALED_FRAME
  return new AppError(code, message.slice(0, MAX_TEXT / 4), { cause: error.cause, data: isLong ? {} : { ...data } })
}

export const failedAnswer = (id: number, error: unknown) => {
  const { code, message, data } = boundedError(error)
  return { type: 'failed', id, code, message, data: JSON.stringify(data) } as const
}

/** The error of a failed call. `data` is JSON. An unknown code is `internal`. */
export const portError = (failure: { code: string; message: string; data?: string }): AppError => {
  return new AppError(errorCodeOf(failure.code), failure.message, {
    data: failure.data === undefined ? {} : (JSON.parse(failure.data) as Record<string, unknown>),
  })
}
