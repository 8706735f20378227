import { existsSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, posix } from 'node:path'
import { realPath } from '../../base/path-resolution.ts'
import { unheldText } from '../../protocol/desk/approval-request-size.ts'
import { type Capability, capabilitiesOf } from '../../protocol/rexd/fields.ts'
import { type Approval, allowsAnything } from '../approval/approval.ts'
import { permitFacts } from '../approval/permit-facts.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { type ExecutableLookup, findExecutable, isApplet, isCalled } from '../executable.ts'
import { UNCONFINED } from '../mesh/confinement.ts'
import { firstMismatch } from '../mesh/match.ts'
import { type Executable, type Permit, type PermitFields, type SandboxGrant, type SandboxImage, sealPermit } from '../permit.ts'
import { findInImage, namesInImage } from '../sandbox/sandbox-grant.ts'
import type { Slot, Slots } from '../slots.ts'
import { THROUGH_THE_MESH, forbiddenTarget } from './authorize-target.ts'
import { type FileAccess, type FilePermit, type Root, sealFilePermit } from './file-permit.ts'
import {
  type LocalRunIntent,
  type Refused,
  type SessionIntent,
  type SessionRights,
  capsOf,
  impossibleText,
  isAmount,
  missingCapability,
  noAmount,
  noSlot,
  refused,
  tooLong,
  ungranted,
} from './intent.ts'
import { type ExecInForce, type LocalApprovalNeeded, askLocally, deniedByMode } from './local-asking.ts'
import type { CommandRule, LocalLimits, LocalPolicy } from './policy.ts'
import { writesOf } from './requester-writes.ts'
import { unattendedVariables } from './unattended.ts'

/** Where it is to start: a directory below a root, held open. */
export interface WorkingDirectory {
  readonly path: string
  /** Null where the system has no way to hold a directory. */
  readonly descriptor: number | null
}

export interface LocalContext {
  readonly policy: LocalPolicy
  readonly rights: SessionRights
  readonly slots: Slots
  readonly session_id: string
  /** What is in force for this call; absent or null: the file says nothing of it, and its ceiling alone decides. */
  readonly exec?: ExecInForce | null
  /** It is to run in a sandbox, and this is what it may have; absent or null: on this host. */
  readonly sandbox?: SandboxGrant | null
}

/** What a session that asks for this gets: roots and capabilities narrow, limits go down. `available`: what its door can carry. */
export const authorizeSession = (
  intent: SessionIntent,
  policy: LocalPolicy,
  available: ReadonlySet<Capability>,
): { readonly kind: 'rights'; readonly rights: SessionRights } | Refused => {
  const unknown = intent.capabilities?.find((name) => capabilitiesOf(name).length === 0)
  if (unknown !== undefined)
    return refused('unsupported_capability', `there is no capability ${JSON.stringify(unknown)}`, { capability: unknown })
  const limits: { -readonly [K in keyof LocalLimits]: number } = { ...policy.limits }
  for (const [key, asked] of Object.entries(intent.limits) as [keyof LocalLimits, number][]) {
    const max = policy.limits[key]
    if (!isAmount(asked)) return noAmount(key, asked)
    if (asked > max) return refused('resource_limit', `${key}: ${asked} is above the server's ${max}`, { limit: key, asked, max })
    limits[key] = asked
  }
  limits.default_timeout_ms = Math.min(limits.default_timeout_ms, limits.hard_timeout_ms)
  const roots = Object.freeze([...(intent.roots ?? policy.roots)])
  const wider = roots.find((root) => !policy.roots.some(({ real }) => namesBelow(root.real, real) !== null))
  if (wider !== undefined) return outside(wider.path, policy.roots)
  const { target } = intent
  const wanted = intent.capabilities === null ? null : withEvents(intent.capabilities.flatMap(capabilitiesOf))
  if (target !== null) {
    const problem = forbiddenTarget(target, intent, policy, available)
    if (problem !== null) return problem
  }
  const capabilities = [...policy.granted].filter(
    (one) => available.has(one) && (wanted === null || wanted.includes(one)) && (target === null || THROUGH_THE_MESH.includes(one)),
  )
  const rights = { roots: target === null ? roots : [], capabilities: new Set(capabilities), limits: Object.freeze(limits), target }
  return { kind: 'rights', rights: Object.freeze(rights) }
}

/** `events` comes with `exec` and `pty`. */
const withEvents = (wanted: readonly Capability[]): readonly Capability[] =>
  wanted.includes('exec') || wanted.includes('pty') ? [...wanted, 'events'] : wanted

/** The names that lead from a directory to a path below it; null where it is not below. By whole names: `/srv/app2` is not below `/srv/app`. */
export const namesBelow = (path: string, directory: string): string[] | null => {
  if (path === directory) return []
  const prefix = directory === '/' ? '/' : `${directory}/`
  return path.startsWith(prefix) ? path.slice(prefix.length).split('/') : null
}

const outside = (path: string, roots: readonly Root[]): Refused =>
  refused('forbidden_path', `${path} is outside the allowed roots`, { path, allowed_roots: roots.map((root) => root.path) })

/**
 * May what stands at a path be looked at, or changed? A relative path goes on from the session's first root. `.` and
 * `..` are taken out of the text before anything is looked at; what links do to it is the file room's to see to.
 */
export const authorizeFile = (
  { path, access }: { readonly path: string; readonly access: FileAccess },
  { roots, capabilities, limits, target }: SessionRights,
): { readonly kind: 'permit'; readonly permit: FilePermit } | Refused => {
  const capability = access === 'write' ? 'fs.write' : 'fs.read'
  if (!capabilities.has(capability)) return ungranted(capability, target)
  if (path === '' || path.includes('\0')) return refused('bad_request', 'path: empty, or with a NUL character')
  const base = roots[0]?.path ?? '/'
  const whole = posix.normalize(isAbsolute(path) ? path : `${base}/${path}`)
  const plain = whole.length > 1 && whole.endsWith('/') ? whole.slice(0, -1) : whole
  for (const root of roots) {
    const names = namesBelow(plain, root.path) ?? namesBelow(plain, root.real)
    if (names === null) continue
    const permit = sealFilePermit({ access, root, names, roots, max_read_bytes: limits.max_file_read_bytes })
    return { kind: 'permit', permit }
  }
  return outside(plain, roots)
}

/** May a program be run? Decides, reserves the slot and makes the permit in one step that nothing can interrupt. */
export const authorizeLocalRun = (
  intent: LocalRunIntent,
  cwd: WorkingDirectory,
  { policy, rights, slots, session_id, exec = null, sandbox = null }: LocalContext,
  approval: Approval | null = null,
): { readonly kind: 'permit'; readonly permit: Permit; readonly slot: Slot } | LocalApprovalNeeded | Refused => {
  const problem = impossibleText(intent) ?? tooLong(intent) ?? missingCapability(intent, rights) ?? forbiddenVariable(intent, policy)
  if (problem !== null) return problem
  // Neither on the host where a sandbox is meant, nor the other way round.
  if (exec !== null && (exec.host === 'sandbox') !== (sandbox !== null))
    return refused('sandbox_unavailable', 'the run is to be in a sandbox, and was given none')
  const denial = exec === null ? null : deniedByMode(exec)
  if (denial !== null) return denial
  const caps = capsOf(intent, rights.limits)
  if ('kind' in caps) return caps
  const [name = ''] = intent.argv
  const image = sandbox?.image ?? null
  const env = environmentOf(intent, policy, image)
  const lookup =
    sandbox === null || image === null ? lookUp(name, env['PATH'], cwd, policy) : findInImage(sandbox, name, env['PATH'] ?? SCRUBBED_PATH)
  const executable = lookup.kind === 'found' ? lookup.executable : null
  const rule = commandRule(intent.argv, executable, policy, image === null ? null : sandbox)
  if ('kind' in rule) return rule
  if (lookup.kind !== 'found') return notLaunchable(name, lookup)
  const fields: PermitFields = {
    argv: intent.argv,
    executable: lookup.executable,
    cwd: cwd.path,
    cwd_descriptor: cwd.descriptor,
    env,
    caps,
    terminal: intent.terminal,
    confinement: UNCONFINED,
    account: null,
    sandbox,
    pins: [],
    stand_in: null,
    matched_acl: rule.matched,
    principal: { kind: 'local', session_id },
  }
  const asked = exec === null ? null : lookAndAsk({ fields, intent, policy }, exec, approval)
  if (asked !== null && 'kind' in asked) return asked
  const slot = slots.reserve('')
  if (slot === null) return noSlot(rights.limits, intent.detach)
  const permit = sealPermit({ ...fields, ...asked })
  return { kind: 'permit', permit, slot }
}

/** Looks at every file of the run; what must still be so when it starts, or what stands before that. */
const lookAndAsk = (
  { fields, intent, policy }: { readonly fields: PermitFields; readonly intent: LocalRunIntent; readonly policy: LocalPolicy },
  exec: ExecInForce,
  approval: Approval | null,
): Pick<PermitFields, 'pins' | 'stand_in'> | LocalApprovalNeeded | Refused => {
  const { door, label, host, stdin, ask, always_ask } = exec
  const asker = { kind: 'local', label } as const
  const target = { host, agent_id: null }
  const by = {
    door,
    asker,
    target,
    stdin,
    ask,
    always_ask,
    variables: Object.keys(intent.env),
    outlives: intent.detach,
    canWrite: writesOf(policy),
  }
  const { pins, stand_in, ...facts } = permitFacts(fields, by)
  const { argv, cwd, principal } = fields
  const session_id = principal.kind === 'local' ? principal.session_id : null
  const run = { argv, cwd, env: fields.env, session_id, agent_id: null }
  const asked = askLocally(run, facts, exec, approval)
  if (asked !== null) return asked
  // Nobody has allowed these bytes, and a script keeps its own path.
  if (approval === null || allowsAnything(approval, facts.opaque)) return { pins, stand_in: null }
  return facts.unheld === null ? { pins, stand_in } : refused('approval_denied', unheldText(facts.unheld))
}

/** `data.why`: there is no such program, or nobody may execute what stands there, or others could put another in its place. */
const notLaunchable = (name: string, lookup: Exclude<ExecutableLookup, { kind: 'found' }>): Refused =>
  refused('file_not_found', lookup.detail, { argv0: name, why: lookup.kind === 'missing' ? lookup.why : 'not_executable' })

/** An image knows where its programs are: this host's PATH says nothing of it. */
const environmentOf = (
  { clear_env, terminal, env }: LocalRunIntent,
  policy: LocalPolicy,
  image: SandboxImage | null,
): Readonly<Record<string, string>> => ({
  ...(clear_env === true ? {} : policy.env),
  ...(clear_env === true || image === null ? {} : { PATH: SCRUBBED_PATH, ...image.env }),
  ...(terminal === null ? {} : { TERM: 'xterm-256color' }),
  ...(policy.unattended === true && clear_env !== true ? unattendedVariables(env) : {}),
  ...env,
})

/** With `any_program` as execvp(3) would from the working directory, and whoever may replace what is found. */
const lookUp = (name: string, path: string | undefined, cwd: WorkingDirectory, { any_program }: LocalPolicy): ExecutableLookup => {
  if (!any_program) return findExecutable(name, path)
  const from = (place: string): string => posix.resolve(cwd.path, place)
  const lookup = findExecutable(name.includes('/') ? from(name) : name, path?.split(':').map(from).join(':'))
  return lookup.kind === 'unsafe' ? { kind: 'found', executable: lookup.executable } : lookup
}

const forbiddenVariable = ({ env }: LocalRunIntent, { allow_env }: LocalPolicy): Refused | null => {
  if (allow_env === null) return null
  const variable = Object.keys(env).find((name) => !allow_env.includes(name))
  if (variable === undefined) return null
  return refused('command_denied', `env: ${variable} may not be set; security.allow_env lists those that may`, { variable, allow_env })
}

export const fits = ({ tokens, anyArguments }: CommandRule, argv: readonly string[]): boolean =>
  firstMismatch(tokens, anyArguments ? argv.slice(0, tokens.length) : argv) === null

/**
 * Denials also by the file that is meant, whatever name or link it is called by; but of one that is many programs,
 * the name says which.
 */
export const denies = (rule: CommandRule, argv: readonly string[], executable: Executable | null, path: string | undefined): boolean => {
  if (fits(rule, argv)) return true
  const [name = '', ...rest] = rule.argv
  const same =
    executable !== null &&
    isCalled(executable, name, path) &&
    !(isApplet(executable, path) && posix.basename(executable.path) !== posix.basename(name))
  return same && fits({ ...rule, argv: rest, tokens: rule.tokens.slice(1) }, argv.slice(1))
}

/** In an image the host's files say nothing: what goes by the name is denied. */
const deniesByName = ({ argv: [name = ''], tokens, ...rule }: CommandRule, argv: readonly string[], names: readonly string[]): boolean =>
  names.includes(posix.basename(name)) && fits({ ...rule, argv: [], tokens: tokens.slice(1) }, argv.slice(1))

/** The rule that allows the command; denials go first. */
const commandRule = (
  argv: readonly string[],
  executable: Executable | null,
  policy: LocalPolicy,
  inImage: SandboxGrant | null,
): { readonly matched: string } | Refused => {
  if (argv[0] === undefined || argv[0] === '') return refused('bad_request', 'argv: it names at least the program')
  const { allow_commands, deny_commands, env } = policy
  const denied = deny_commands.findIndex(
    (rule) =>
      denies(rule, argv, executable, env['PATH']) ||
      (inImage !== null && executable !== null && deniesByName(rule, argv, namesInImage(inImage, executable))),
  )
  if (denied !== -1)
    return refused('command_denied', `security.deny_commands[${denied}] forbids this command`, { rule: `deny_commands[${denied}]` })
  if (allow_commands === null) return { matched: 'security' }
  const allowed = allow_commands.findIndex((rule) => fits(rule, argv))
  if (allowed !== -1) return { matched: `allow_commands[${allowed}]` }
  return refused('command_denied', 'no entry of security.allow_commands allows this command', { rule: 'allow_commands' })
}

/** Where a path leads whose end is not made yet. */
const leadsTo = (path: string): string => (existsSync(path) ? realPath(path) : join(leadsTo(dirname(path)), basename(path)))

/** True when a path is a directory or stands below it, as links lead to both, which need not be there. */
export const isWithin = (path: string, directory: string): boolean => namesBelow(leadsTo(path), leadsTo(directory)) !== null

/**
 * Why a human would decide nothing here: whoever may look at files reads the operator's key in our data directory, and whoever writes
 * the store allows itself. Null: it is below no root, or there are no files.
 */
export const exposedDataDir = ({ roots, granted }: Pick<LocalPolicy, 'roots' | 'granted'>, dataDir: string): string | null => {
  if (!granted.has('fs.read') && !granted.has('fs.write')) return null
  const root = roots.find(({ real }) => isWithin(dataDir, real) || isWithin(real, dataDir))
  return root === undefined
    ? null
    : `security.allowed_roots: the data directory ${dataDir} is below the root ${root.path}, or around it, so that an agent could read operator.key there and decide by itself: name roots without it, or put it elsewhere (X0X_DATA_DIR)`
}
