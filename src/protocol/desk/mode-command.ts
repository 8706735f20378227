import { isTable } from '../json-table.ts'
import { MAX_SESSION_NAME } from '../limits/approvals.ts'
import type { ModeOverride } from './messages.ts'
import { ASKS, HOSTS, SECURITIES } from './approval-request.ts'

/** A change of a session's modes. Absent fields stay unchanged. Null restores the configured mode. */
export type ModeChange = Partial<ModeOverride>

/** A parsed command, which shows or changes the modes, or an error. */
export type ModeCommand =
  | { readonly kind: 'show' }
  | { readonly kind: 'change'; readonly change: ModeChange }
  | { readonly kind: 'problem'; readonly problem: string }

export const NOTHING_SET: ModeOverride = { host: null, security: null, ask: null, node: null, elevated: null }
const VALUES: ReadonlyMap<string, readonly string[]> = new Map<string, readonly string[]>([
  ['host', HOSTS],
  ['security', SECURITIES],
  ['ask', ASKS],
])
/** Value for the configured mode. */
const CONFIGURED = 'default'

const problem = (text: string): ModeCommand => ({ kind: 'problem', problem: text })

const quoted = (text: string): string => JSON.stringify(text)

const isNode = (value: string): boolean => value.length <= MAX_SESSION_NAME && /^[^\p{C}\p{Z}]+$/u.test(value)

/** `host=gateway ask=always`, with each name at most once. */
export const readSettings = (words: readonly string[]): ModeCommand => {
  const change: Record<string, string | null> = {}
  for (const word of words) {
    const [, name = '', value = ''] = /^([a-z]+)=(.*)$/su.exec(word) ?? []
    if (name !== 'node' && !VALUES.has(name)) return problem(`${quoted(word)} is not one of host=, security=, ask= and node=`)
    if (Object.hasOwn(change, name)) return problem(`${name} is set twice`)
    const takes = name === 'node' ? isNode(value) : VALUES.get(name)?.includes(value) === true
    if (value !== CONFIGURED && !takes)
      return problem(
        `${name}=${quoted(value)} is not ${name === 'node' ? 'the ID or name of an agent' : `one of ${VALUES.get(name)?.join(', ')}, ${CONFIGURED}`}`,
      )
    change[name] = value === CONFIGURED ? null : value
  }
  return Object.keys(change).length === 0 ? { kind: 'show' } : { kind: 'change', change }
}

const ELEVATED: Readonly<Record<string, ModeOverride['elevated']>> = { on: 'on', ask: 'ask', full: 'full', off: null }

/** Parses a line of an approver, `/exec host=… security=… ask=… node=…` or `/elevated on|off|ask|full`. */
export const readModeCommand = (words: readonly string[]): ModeCommand => {
  const [command, ...rest] = words
  if (command === '/exec') return readSettings(rest)
  if (command !== '/elevated') return problem(`${quoted(command ?? '')} is not /exec or /elevated`)
  const [level = ''] = rest
  if (rest.length !== 1 || !Object.hasOwn(ELEVATED, level)) return problem('/elevated needs one of on, off, ask, full')
  return { kind: 'change', change: { elevated: ELEVATED[level] ?? null } }
}

/** The modes after a change, or null if all are the configured ones. */
export const changedOverride = (before: ModeOverride | null, change: ModeChange): ModeOverride | null => {
  const after = { ...NOTHING_SET, ...before, ...change }
  return Object.values(after).every((value) => value === null) ? null : after
}

/** The modes of a session in a reply of the approval service. */
export const overrideIn = (value: unknown): ModeOverride | null => (isTable(value) ? (value as unknown as ModeOverride) : null)

/** `host=gateway ask=always`, in the form of a command. */
export const overrideText = (override: ModeOverride | null): string =>
  override === null
    ? 'as configured'
    : Object.entries(override)
        .filter(([, value]) => value !== null)
        .map(([name, value]) => (name === 'elevated' ? `/elevated ${value}` : `${name}=${value}`))
        .join(' ')
