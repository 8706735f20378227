import { existsSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, posix } from 'node:path'
import { realPath } from '../../base/path-resolution.ts'
import { unheldText } from '../../protocol/desk/approval-request-size.ts'
import { MIN_ID_PREFIX } from '../../protocol/limits/wire.ts'
import { type Capability, capabilitiesOf } from '../../protocol/rexd/fields.ts'
import { type Approval, allowsAnything } from '../approval/approval.ts'
import type { CanWrite } from '../approval/pinned-files.ts'
import { permitFacts } from '../approval/permit-facts.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { type ExecutableLookup, findExecutable, isApplet, isCalled } from '../executable.ts'
import { UNCONFINED } from '../mesh/confinement.ts'
import { firstMismatch } from '../mesh/match.ts'
import { type Executable, type Permit, type PermitFields, type SandboxGrant, type SandboxImage, sealPermit } from '../permit.ts'
import { findInImage, namesInImage, sandboxGrant, sandboxPath } from '../sandbox/sandbox-grant.ts'
import { DEFAULT_SANDBOX } from '../sandbox/sandbox-settings.ts'
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
import { unattendedVariables } from './unattended.ts'

/** Directory in which the run starts. It is below a root and held open. */
export interface WorkingDirectory {
  readonly path: string
  /** Null if the system has no way to hold a directory. */
  readonly descriptor: number | null
}

export interface LocalContext {
  readonly policy: LocalPolicy
  readonly rights: SessionRights
  readonly slots: Slots
  readonly session_id: string
  /** Modes in force for this call. Absent or null if the configuration sets no modes, so that the policy alone decides. */
  readonly exec?: ExecInForce | null
  /** Resources of a run in a sandbox. Absent or null for a run on this host. */
  readonly sandbox?: SandboxGrant | null
}

/** Decides the rights of a session. A request can only narrow them. `available` are the capabilities of the interface. */
export const authorizeSession = (
  intent: SessionIntent,
  policy: LocalPolicy,
  available: ReadonlySet<Capability>,
): { readonly kind: 'rights'; readonly rights: SessionRights } | Refused => {
  const unknown = intent.capabilities?.find((name) => capabilitiesOf(name).length === 0)
  if (unknown !== undefined)
    return refused('unsupported_capability', `unknown capability ${JSON.stringify(unknown)}`, { capability: unknown })
  const limits: { -readonly [K in keyof LocalLimits]: number } = { ...policy.limits }
  for (const [key, asked] of Object.entries(intent.limits) as [keyof LocalLimits, number][]) {
    const max = policy.limits[key]
    if (!isAmount(asked)) return noAmount(key, asked)
    if (asked > max)
      return refused('resource_limit', `${key}: ${asked} is above the limit ${max} of the server`, { limit: key, asked, max })
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

/** `exec` and `pty` include `events`. */
const withEvents = (wanted: readonly Capability[]): readonly Capability[] =>
  wanted.includes('exec') || wanted.includes('pty') ? [...wanted, 'events'] : wanted

/** Path components from a directory to a path below it, or null if it is not below. `/srv/app2` is not below `/srv/app`. */
export const namesBelow = (path: string, directory: string): string[] | null => {
  if (path === directory) return []
  const prefix = directory === '/' ? '/' : `${directory}/`
  return path.startsWith(prefix) ? path.slice(prefix.length).split('/') : null
}

const outside = (path: string, roots: readonly Root[]): Refused =>
  refused('forbidden_path', `${path} is outside the allowed roots`, { path, allowed_roots: roots.map((root) => root.path) })

/**
 * Decides whether a file may be read or changed. A relative path starts at the session's first root. `.` and `..` are removed from the text
 * first. `fs/` checks links when it opens the file.
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

/** Decides whether a program may run. Decision, slot reservation and permit are one uninterrupted step. */
export const authorizeLocalRun = (
  intent: LocalRunIntent,
  cwd: WorkingDirectory,
  { policy, rights, slots, session_id, exec = null, sandbox = null }: LocalContext,
  approval: Approval | null = null,
): { readonly kind: 'permit'; readonly permit: Permit; readonly slot: Slot } | LocalApprovalNeeded | Refused => {
  const problem = impossibleText(intent) ?? tooLong(intent) ?? missingCapability(intent, rights) ?? forbiddenVariable(intent, policy)
  if (problem !== null) return problem
  // A run for the sandbox must not start on the host, nor the other way round.
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

/** Inspects each file of the run. Returns the files to check at the start and their replacements, or why the run cannot start. */
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
  // A mode or pattern allowed any content of the files, so the run uses them at their own paths.
  if (approval === null || allowsAnything(approval, facts.opaque)) return { pins, stand_in: null }
  return facts.unheld === null ? { pins, stand_in } : refused('approval_denied', unheldText(facts.unheld))
}

/** `data.why` says that the program does not exist, is not executable, or can be replaced by other users. */
const notLaunchable = (name: string, lookup: Exclude<ExecutableLookup, { kind: 'found' }>): Refused =>
  refused('file_not_found', lookup.detail, { argv0: name, why: lookup.kind === 'missing' ? lookup.why : 'not_executable' })

/** An image sets the PATH of its programs. This host's PATH does not apply. */
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

/** With `any_program`, finds programs as execvp(3) does from the working directory, even if other users may replace them. */
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

/** A denial also applies to the file under another name or link. For a multi-call program such as busybox, the name decides. */
export const denies = (rule: CommandRule, argv: readonly string[], executable: Executable | null, path: string | undefined): boolean => {
  if (fits(rule, argv)) return true
  const [name = '', ...rest] = rule.argv
  const same =
    executable !== null &&
    isCalled(executable, name, path) &&
    !(isApplet(executable, path) && posix.basename(executable.path) !== posix.basename(name))
  return same && fits({ ...rule, argv: rest, tokens: rule.tokens.slice(1) }, argv.slice(1))
}

/** A program in an image has no host file to compare, so a denial applies by name. */
const deniesByName = ({ argv: [name = ''], tokens, ...rule }: CommandRule, argv: readonly string[], names: readonly string[]): boolean =>
  names.includes(posix.basename(name)) && fits({ ...rule, argv: [], tokens: tokens.slice(1) }, argv.slice(1))

/** Finds the rule that allows the command. Denials come first. */
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

/** Resolves a path whose last components may not exist. */
const leadsTo = (path: string): string => (existsSync(path) ? realPath(path) : join(leadsTo(dirname(path)), basename(path)))

/** True if a path is a directory or below it after resolving links. Both may be missing. */
export const isWithin = (path: string, directory: string): boolean => namesBelow(leadsTo(path), leadsTo(directory)) !== null

/**
 * Why approvals would not protect this host. A client that reads files gets the operator key from the data directory, and a client that
 * writes files can change the approval store. Null if the data directory is outside all roots or clients have no file access.
 */
export const exposedDataDir = ({ roots, granted }: Pick<LocalPolicy, 'roots' | 'granted'>, dataDir: string): string | null => {
  if (!granted.has('fs.read') && !granted.has('fs.write')) return null
  const root = roots.find(({ real }) => isWithin(dataDir, real) || isWithin(real, dataDir))
  return root === undefined
    ? null
    : `security.allowed_roots: the root ${root.path} and the data directory ${dataDir} overlap, so an AI agent could read operator.key and approve its own requests: choose other roots, or another data directory (X0X_DATA_DIR)`
}

/**
 * Tests whether the requester can write a path without an approver. With `fs.write` it can write all files below its roots, otherwise those
 * in a directory that a sandbox may use.
 */
const writesOf = ({ roots, granted }: Pick<LocalPolicy, 'roots' | 'granted'>): CanWrite => {
  const isBelow = (path: string): boolean => roots.some(({ real }) => path.startsWith(real === '/' ? real : `${real}/`))
  if (granted.has('fs.write')) return isBelow
  const place = sandboxPath()
  const holds = (directory: string): boolean => sandboxGrant(DEFAULT_SANDBOX, directory, place).kind === 'grant'
  return (path) => {
    for (let at = path; isBelow(at) && at !== '/'; at = dirname(at)) if (holds(dirname(at))) return true
    return false
  }
}

/** A mesh agent on which a run is to execute. */
export interface ResolvedNode {
  readonly agent_id: string
  /** Name of the contact, or null. */
  readonly name: string | null
}

/** Capabilities of a run on another agent, as in a session for one target. */
const THERE: readonly Capability[] = ['exec', 'events', 'target']

/**
 * Decides what a session may do on the agent of one of its runs. It gets no more rights than the session itself, and no more than a session
 * for that agent. `security.allow_targets` lists agents by contact name or ID. For a contact, a prefix of the ID is enough, but an unlisted
 * agent could create an ID with any prefix. The name that an agent gives itself does not count.
 */
export const rightsOnNode = (
  { agent_id, name }: ResolvedNode,
  policy: LocalPolicy,
  { capabilities, limits, target }: SessionRights,
): { readonly kind: 'rights'; readonly rights: SessionRights } | Refused => {
  const prefix = name === null ? undefined : policy.targets?.find((text) => text.length >= MIN_ID_PREFIX && agent_id.startsWith(text))
  const named = [agent_id, prefix, name].find((text) => typeof text === 'string' && policy.targets?.includes(text) === true)
  const asked = { roots: null, capabilities: null, limits: {}, target: named ?? name ?? agent_id }
  const available = THERE.filter((one) => capabilities.has(one) || (one === 'target' && target !== null))
  const verdict = authorizeSession(asked, policy, new Set(available))
  if (verdict.kind === 'refused') return verdict
  return { kind: 'rights', rights: Object.freeze({ ...verdict.rights, limits, target: agent_id }) }
}
