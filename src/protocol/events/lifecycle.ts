import {
  type Sent,
  closedProblemOf,
  count,
  flag,
  integer,
  isTable,
  isText,
  oneOf,
  orNull,
  tested,
  text,
  textOf,
  textUpTo,
} from '../json-table.ts'
import { MAX_EVENT_TAIL } from '../limits/events.ts'
import { LOCAL_INTERFACES } from '../reasons.ts'

/** Events of a run for its requester. A run has at most one `exec.started`, and ends with one `exec.finished` or `exec.denied`. */
export const LIFECYCLE_TYPES = ['exec.started', 'exec.waiting', 'exec.finished', 'exec.denied'] as const

/** These add the output so far, for an operator who watches this host. The requester has the output stream. */
export const WATCHED_TYPES = [...LIFECYCLE_TYPES, 'exec.output'] as const

/** `rest` is a run that this daemon's API requested. `mesh` is a run on this host for a mesh agent. */
export const LIFECYCLE_INTERFACES = ['rest', 'mesh', ...LOCAL_INTERFACES] as const

/** Host of a run on this machine without a sandbox. */
export const HERE = 'gateway'
const SANDBOX = 'sandbox'

/** Characters that would end a line or the parenthesis of the sentence. */
const NOT_OF_A_NAME = /[\p{C}\p{Z}(),=]/gu
const MAX_LIFECYCLE_NAME = 128
const name = tested<string>(
  (value) => isText(value) && value.length > 0 && value.length <= MAX_LIFECYCLE_NAME && value.search(NOT_OF_A_NAME) === -1,
  'a name',
)

/** A name in an event, without characters that would end its sentence. */
export const lifecycleName = (text: string): string => text.slice(0, MAX_LIFECYCLE_NAME).replaceAll(NOT_OF_A_NAME, '_') || '_'

const MAX_LABEL = 256
const label = textUpTo(MAX_LABEL)

/** A label, cut to the length in an event. */
export const lifecycleLabel = (text: string): string => text.slice(0, MAX_LABEL).replaceAll('\0', ' ')

export const LIFECYCLE_FIELDS = {
  type: oneOf(WATCHED_TYPES),
  /** Number in its log, from 1, without gaps except for evicted events. */
  n: count,
  /** ISO 8601. */
  ts: text,
  /** Label of a local client, or ID of an agent. */
  owner: label,
  session: orNull(label),
  door: oneOf(LIFECYCLE_INTERFACES),
  run_id: name,
  /** Target of the run, as ID or name of an agent as requested, `gateway` (this host) or `sandbox`. */
  node: name,
  code: orNull(integer),
  signal: orNull(integer),
  duration_ms: orNull(count),
  /** In `exec.waiting`, the maximum time to wait, from `ts`. */
  expires_in_ms: orNull(count).says('with exec.waiting: maximum time to wait for the approval'),
  /** End of the output of both streams in order of arrival. Null except in `exec.finished` and `exec.output`. Untrusted text. */
  tail: orNull(textOf({ max: MAX_EVENT_TAIL })).says('end of the output (untrusted text)'),
  tail_truncated: flag,
  /** True if the end is unknown or output is missing. Such a run is never a success. */
  incomplete: flag,
  denial_reason: orNull(name),
}

export type LifecycleEvent = Sent<typeof LIFECYCLE_FIELDS>

/** Facts that the reporter of a run provides. The log adds the rest. */
export type LifecycleFacts = Pick<LifecycleEvent, 'type' | 'owner' | 'session' | 'door' | 'run_id' | 'node'> & Partial<LifecycleEvent>

const NOTHING = {
  code: null,
  signal: null,
  duration_ms: null,
  expires_in_ms: null,
  tail: null,
  tail_truncated: false,
  incomplete: false,
  denial_reason: null,
}

export const lifecycleEvent = (facts: LifecycleFacts, { n, ts }: Pick<LifecycleEvent, 'n' | 'ts'>): LifecycleEvent => {
  const { type, owner, session, door, run_id, node, ...rest } = facts
  return { type, n, ts, owner, session, door, run_id, node, ...NOTHING, ...rest }
}

/** Key of a run. It includes the owner, because a mesh agent chooses the IDs of its runs and could choose another's. */
export const runOf = ({ session, owner, run_id }: Pick<LifecycleEvent, 'session' | 'owner' | 'run_id'>): string =>
  `${session ?? owner} ${run_id}`

/** True for the last event of a run. */
export const isOver = ({ type }: Pick<LifecycleEvent, 'type'>): boolean => type === 'exec.finished' || type === 'exec.denied'

/** True for a run that is not on another machine. */
export const isHere = ({ node }: LifecycleEvent): boolean => node === HERE || node === SANDBOX

/** Why a value is not an event, or null if it is one. */
export const lifecycleProblem = (value: unknown): string | null => {
  return isTable(value) ? closedProblemOf(value, LIFECYCLE_FIELDS) : 'it is not an object'
}

/** Qualifiers after the exit code. */
const qualifiers = ({ signal, incomplete }: LifecycleEvent): string =>
  `${signal === null ? '' : ` signal=${signal}`}${incomplete ? ' incomplete' : ''}`

/** The sentence of the specification, without the tail. */
export const lifecycleText = (event: LifecycleEvent): string => {
  const which = `node=${event.node}, id=${event.run_id}`
  switch (event.type) {
    case 'exec.started':
      return `Exec started (${which})`
    case 'exec.waiting':
      return `Exec waiting for approval (${which})`
    case 'exec.output':
      return `Exec running (${which})`
    case 'exec.finished':
      return `Exec finished (${which}, code=${event.code}${qualifiers(event)})`
    case 'exec.denied':
      return `Exec denied (${which}, ${event.denial_reason})`
    default:
      return event.type satisfies never
  }
}

const INDENT = '  '

/** The sentence, and the tail in lines with a prefix, so that output cannot imitate a sentence. `show` makes untrusted text visible. */
export const lifecycleTextWithTail = (event: LifecycleEvent, show: (foreign: string) => string): string => {
  const sentence = lifecycleText(event)
  if (event.tail === null || event.tail === '') return sentence
  const lines = show(event.tail).replace(/\n$/, '').split('\n')
  return [sentence, ...lines.map((line) => `${INDENT}${line}`)].join('\n')
}
