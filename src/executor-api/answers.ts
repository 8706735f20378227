import { ASKED_ANSWERS } from './asked-messages.ts'
import type { ToExecutor, ToNetwork } from './messages.ts'

/** Which answer belongs to which call. */
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
  evaluate_trust: 'result',
  prove_fanout: 'result',
  fanout_over: 'result',
  settings: 'settings',
  ...ASKED_ANSWERS,
} as const satisfies Partial<Record<ToExecutor['type'], ToNetwork['type']>>
type Answers = typeof ANSWERS
export type CallType = keyof Answers
type WithoutId<T> = T extends unknown ? Omit<T, 'type' | 'id'> : never
export type Arguments<C extends CallType> = WithoutId<Extract<ToExecutor, { type: C }>>
export type Answer<C extends CallType> = WithoutId<Extract<ToNetwork, { type: Answers[C] }>>
