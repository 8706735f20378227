import { posix } from 'node:path'
import { type ErrorCode, attempt } from '../../base/errors.ts'
import { realPath } from '../../base/path-resolution.ts'
import type { CommandLookup } from '../../protocol/api/rules.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { type ExecutableLookup, findExecutable } from '../executable.ts'
import { denies, fits } from './authorize.ts'
import { type SessionRights, ungranted } from './intent.ts'
import type { CommandRule, LocalPolicy } from './policy.ts'

/** The rule reduced to its program, with any arguments. */
const ofProgram = (rule: CommandRule): CommandRule => ({
  ...rule,
  argv: rule.argv.slice(0, 1),
  tokens: rule.tokens.slice(0, 1),
  anyArguments: true,
})

const isOfAll = ({ tokens, anyArguments }: CommandRule): boolean => tokens.length === 1 && anyArguments

type Verdict = Pick<CommandLookup, 'allowed_arguments' | 'denial'>

const refusal = (code: ErrorCode, detail: string): Verdict => ({ allowed_arguments: 'none', denial: { code, detail } })

/** The verdict of `authorizeLocalRun` that holds for some or for all arguments of the program. */
const verdictOf = (command: string, lookup: ExecutableLookup, policy: LocalPolicy, { capabilities, target }: SessionRights): Verdict => {
  if (!capabilities.has('exec')) return refusal('unsupported_capability', ungranted('exec', target).message)
  const executable = lookup.kind === 'found' ? lookup.executable : null
  const { allow_commands, deny_commands, env } = policy
  const isMeant = (rule: CommandRule): boolean => denies(ofProgram(rule), [command], executable, env['PATH'])
  const always = deny_commands.findIndex((rule) => isOfAll(rule) && isMeant(rule))
  if (always !== -1) return refusal('command_denied', `security.deny_commands[${always}] forbids this command`)
  const allowing = allow_commands?.filter((rule) => fits(ofProgram(rule), [command])) ?? null
  if (allowing?.length === 0) return refusal('command_denied', 'no entry of security.allow_commands allows this command')
  const isFree = allowing === null || allowing.some(isOfAll)
  return { allowed_arguments: isFree && !deny_commands.some(isMeant) ? 'any' : 'some', denial: null }
}

const problemOf = (lookup: ExecutableLookup): CommandLookup['problem'] => {
  if (lookup.kind === 'found') return null
  return { kind: lookup.kind === 'missing' ? lookup.why : 'not_executable', detail: lookup.detail }
}

const UNTOLD = { found: null, path: null, real_path: null, searched: null, problem: null } as const

/**
 * Finds a command and whether it may run, with the lookup and rules of `authorizeLocalRun`. Like a run, it does not reveal whether a
 * forbidden command exists.
 */
export const lookUpCommand = (command: string, policy: LocalPolicy, rights: SessionRights): CommandLookup => {
  const path = policy.env['PATH'] ?? SCRUBBED_PATH
  const lookup = findExecutable(command, path)
  const verdict = verdictOf(command, lookup, policy, rights)
  if (verdict.denial !== null) return { ...UNTOLD, ...verdict }
  const at = lookup.kind === 'found' ? lookup.executable.path : lookup.path
  return {
    found: lookup.kind === 'found',
    path: at,
    real_path: at === null ? null : attempt(() => realPath(at)),
    searched: command.includes(posix.sep) ? null : path.split(':'),
    problem: problemOf(lookup),
    ...verdict,
  }
}
