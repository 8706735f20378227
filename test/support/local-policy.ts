import assert from 'node:assert/strict'

import { parseToml } from '../../src/base/toml.ts'
import { deepFreeze, TomlReader } from '../../src/base/toml.ts'
import { authorizeLocalRun, authorizeSession } from '../../src/policy/local/authorize.ts'
import type { LocalRunIntent, Refused, SessionIntent, SessionRights } from '../../src/policy/local/intent.ts'
import type { LocalLimits, LocalPolicy } from '../../src/policy/local/policy.ts'
import { isPermit, type Permit } from '../../src/policy/permit.ts'
import { readLocalPolicy } from '../../src/policy/local/read-policy.ts'
import { Slots } from '../../src/policy/slots.ts'
import { CAPABILITY_NAMES, type Capability } from '../../src/protocol/rexd/fields.ts'

/** Parts of REXD's configuration: `[limits]`, `[security]`, and complete tables after them. */
export interface RulesText {
  readonly limits?: string
  readonly security?: string
  readonly rules?: string
}

/** A `[[security.KEY]]` table for a command. With `args`, further arguments match as well. */
export const ruleText = (key: 'allow_commands' | 'deny_commands', argv: readonly string[], args?: 'any'): string =>
  `[[security.${key}]]\nargv = [${argv.map((one) => JSON.stringify(one)).join(', ')}]\n${args === undefined ? '' : `args = "${args}"\n`}`

/** The policy of a file with these roots, frozen as its reader freezes it, and its problems. */
export const readPolicy = (
  roots: readonly string[],
  { limits = '', security = '', rules = '' }: RulesText = {},
  own: Readonly<Record<string, string>> = {},
): { readonly policy: LocalPolicy; readonly problems: readonly string[]; readonly warnings: readonly string[] } => {
  const tables = roots.map((path) => `[[security.allowed_roots]]\npath = ${JSON.stringify(path)}\n`)
  const text = `[limits]\n${limits}\n[security]\n${security}\n${tables.join('')}${rules}`
  const toml = new TomlReader(parseToml(text, 'rexd.toml', 'bad_config', { bigints: true }), 'bad_config')
  const policy = readLocalPolicy(toml, own)
  return { policy: deepFreeze(policy), problems: toml.problems, warnings: toml.warnings }
}

/** The policy of a text that must be valid. */
export const policyOf = (...args: Parameters<typeof readPolicy>): LocalPolicy => {
  const { policy, problems } = readPolicy(...args)
  assert.deepEqual(problems, [])
  return policy
}

/** All permissions that a key can grant. */
export const EVERY_GRANT = 'allow_shell = true\nallow_detach = true\nallow_pty = true\nallow_targets = ["*"]'

const NOTHING_ASKED: SessionIntent = { roots: null, capabilities: null, limits: {}, target: null }

/** The rights of a session with this intent, through an interface that supports everything. */
export const askSession = (
  policy: LocalPolicy,
  intent: Partial<SessionIntent> = {},
  available: ReadonlySet<Capability> = new Set(CAPABILITY_NAMES),
): ReturnType<typeof authorizeSession> => authorizeSession({ ...NOTHING_ASKED, ...intent }, policy, available)

export const rightsOf = (...args: Parameters<typeof askSession>): SessionRights => {
  const verdict = askSession(...args)
  assert.ok(verdict.kind === 'rights', verdict.kind === 'refused' ? verdict.message : '')
  return verdict.rights
}

export const slotsOf = ({ max_processes_per_session: max }: LocalLimits): Slots =>
  new Slots({ max_concurrent_per_agent: max, max_concurrent_total: max })

export const ASKING: LocalRunIntent = {
  argv: ['true'],
  shell: false,
  terminal: null,
  detach: false,
  input: false,
  env: {},
  timeout_ms: null,
  max_output_bytes: null,
}

/** The verdict on a command of a session that requests nothing else. */
export const askRun = (
  policy: LocalPolicy,
  intent: Partial<LocalRunIntent> = {},
  {
    rights = rightsOf(policy),
    slots = slotsOf(rights.limits),
    cwd = { path: '/', descriptor: null as number | null },
  }: { rights?: SessionRights; slots?: Slots; cwd?: { path: string; descriptor: number | null } } = {},
): Exclude<ReturnType<typeof authorizeLocalRun>, { kind: 'ask' }> => {
  const verdict = authorizeLocalRun({ ...ASKING, ...intent }, cwd, { policy, rights, slots, session_id: 's_1' })
  assert.ok(verdict.kind !== 'ask', 'a file without a word of asking asks')
  return verdict
}

export const permitted = (verdict: ReturnType<typeof askRun>): Permit => {
  assert.ok(verdict.kind === 'permit', verdict.kind === 'refused' ? verdict.message : '')
  assert.ok(isPermit(verdict.permit))
  return verdict.permit
}

/** Asserts a refusal with this code, message and data. */
export const refused = (verdict: { readonly kind: string } | Refused, code: Refused['code'], message: RegExp, data: object): void => {
  assert.ok(verdict.kind === 'refused', 'not refused')
  const { code: given, message: text, data: facts } = verdict as Refused
  assert.deepEqual([given, facts], [code, data], text)
  assert.match(text, message)
  assert.ok(Object.isFrozen(verdict))
}
