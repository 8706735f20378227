import { fstatSync, statSync } from 'node:fs'
import { attempt, errorText } from '../../base/errors.ts'
import { programFormat } from '../../base/executable-format.ts'
import { realPath } from '../../base/path-resolution.ts'
import { shownVariables } from '../../protocol/desk/approval-request-size.ts'
import { SCRUBBED_PATH, isHarmless } from '../environment.ts'
import { finderIn } from '../executable.ts'
import { type FilePin, type HashedBytes, HashedFiles, fileMark } from '../file-mark.ts'
import type { PermitFields, StandIn } from '../permit.ts'
import { programPath } from '../sandbox/sandbox-grant.ts'
import { interpretersOf } from '../scripts.ts'
import { alwaysAskOf } from './always-ask.ts'
import type { RequestedStdin, ApprovalRequest } from './approval.ts'
import type { AlwaysAskRule } from './ask-rules.ts'
import { Framed } from './framed.ts'
import { type CanWrite, holdFiles } from './pinned-files.ts'
import { meaningOf } from './meanings.ts'

/** Facts of the request that the digests include in addition to the permit. */
export interface RequestedBy extends Pick<ApprovalRequest, 'door' | 'asker' | 'target' | 'ask'> {
  readonly stdin: RequestedStdin | null
  /** Names of the variables that the client set. */
  readonly variables: readonly string[]
  /** True for a detached run, which continues without its requester. */
  readonly outlives: boolean
  readonly always_ask: readonly AlwaysAskRule[]
  /** Null if the requester has no file access on this host. */
  readonly canWrite: CanWrite | null
}

/** Facts about a run before it is allowed. */
export interface PermitFacts extends Pick<
  ApprovalRequest,
  | 'permit_sha256'
  | 'grant_sha256'
  | 'executable'
  | 'programs'
  | 'opaque'
  | 'variables'
  | 'script'
  | 'writable'
  | 'unheld'
  | 'timeout_ms'
  | 'max_output_bytes'
  | 'outlives'
  | 'always_ask'
> {
  /** Files that must be unchanged when the run starts. */
  readonly pins: readonly FilePin[]
  /** Copies that run in place of files that the requester can write. */
  readonly stand_in: StandIn | null
}

/** Maximum length of a text for the approver. */
const MAX_WHY = 512

/** Inspects each file of the run and binds all of them in two digests. */
export const permitFacts = (fields: PermitFields, by: RequestedBy): PermitFacts => {
  const path = fields.env['PATH'] ?? SCRUBBED_PATH
  const { executable, argv, sandbox } = fields
  const inImage = sandbox !== null && sandbox.image !== null
  const meaning = meaningOf([executable.path, ...argv.slice(1)], by.variables, { cwd: fields.cwd, path: inImage ? null : path })
  // The directory of an unpacked image contains its ID, so its path identifies the image.
  const place = attempt(() => programPath(fields)) ?? executable.path
  const real = inImage ? place : realOf(place)
  const runnable = [...new Set([place, ...meaning.others.map((other) => other.path)])]
  const hashed = new HashedFiles()
  const named = new Set([...meaning.scripts, ...[place].filter(isScript)])
  const scripts = [...named].map((script) => ({ path: script, read: hashed.hash(realOf(script)) }))
  const unread = scripts.find(({ read }) => read === null)
  const { writable, unheld, stand_in } = holdFiles(fields, meaning, by.canWrite, hashed)
  const chain = inImage ? [] : attempt(() => runnable.flatMap((program) => interpretersIn(program, path, hashed)))
  // A grant covers a later run only if each file that the arguments name is known and the requester cannot write it.
  const isOthers = stand_in === null && unheld === null
  const opaque =
    unread !== undefined
      ? `${unread.path} cannot be read completely, so its effect is unknown`
      : (meaning.opaque ??
        (isOthers ? null : `the requester can write ${writable[0]?.path ?? executable.path}`) ??
        (inImage ? 'its programs are in an image, where a name can be any program' : null) ??
        (chain === null ? `${executable.path} names an interpreter that cannot be followed` : null))
  const programs = [...new Set([real, ...scripts.map((script) => realOf(script.path))])]
  const files = [
    ...runnable,
    ...programs,
    ...(chain ?? []),
    ...scripts.map((script) => script.path),
    ...meaning.others.map((other) => other.real),
  ]
  const pins = [...new Set(files)].map((file) => ({ path: file, mark: fileMark(file) }))
  const asks = alwaysAskOf(by.always_ask, { ...meaning, opaque }, path)
  const always_ask = asks?.reason ?? null
  const hashes = scripts.map((script) => script.read?.sha256 ?? null)
  const common = (domain: string): Framed =>
    frameOf(domain, fields, by).tree('pins', pins).tree('scripts', hashes).tree('writable', writable)
  const isSeen = by.stdin !== 'open' && (fields.terminal === null || fields.terminal.raw === true)
  const mayLast = isSeen && isOthers && meaning.isTold && unread === undefined && chain !== null && asks?.isEachTime !== true
  const [first] = scripts
  return {
    permit_sha256: frameOnce(common('x0x-permit-v2'), fields, by, always_ask).digest(),
    grant_sha256: mayLast ? common('x0x-grant-v2').digest() : null,
    executable: real,
    // No allowlist covers an opaque command or a program in an image, which may have any name there.
    programs: meaning.isTold && !inImage ? programs : [],
    opaque: opaque?.slice(0, MAX_WHY) ?? null,
    variables: variablesOf(fields, by),
    script: scriptOf(first),
    writable,
    unheld: unheld?.slice(0, MAX_WHY) ?? null,
    ...ceilingsOf(fields),
    outlives: by.outlives,
    always_ask: always_ask?.slice(0, MAX_WHY) ?? null,
    pins,
    stand_in,
  }
}

const interpretersIn = (program: string, path: string, hashed: HashedFiles): string[] =>
  interpretersOf(program, finderIn(path), (one) => hashed.format(realOf(one))).map(({ interpreter }) => interpreter)

/** The upper limits of a grant for this run. */
const ceilingsOf = ({ caps }: PermitFields): Pick<ApprovalRequest, 'timeout_ms' | 'max_output_bytes'> => ({
  timeout_ms: caps.timeout_ms,
  max_output_bytes: caps.max_output_bytes ?? caps.max_stdout_bytes + caps.max_stderr_bytes,
})

/** Variables of the requester that can decide which code runs. */
const variablesOf = ({ env }: PermitFields, { variables }: RequestedBy): ApprovalRequest['variables'] =>
  shownVariables(variables.filter((name) => !isHarmless(name)).map((name) => ({ name, value: env[name] ?? '' })))

const isScript = (path: string): boolean =>
  attempt(() => {
    const format = programFormat(path)
    return format.kind === 'through' && format.isScript
  }) ?? false

const scriptOf = (first: { readonly path: string; readonly read: HashedBytes | null } | undefined): ApprovalRequest['script'] =>
  first === undefined || first.read === null ? null : { path: first.path, sha256: first.read.sha256 }

const realOf = (path: string): string => attempt(() => realPath(path)) ?? path

/** Fields of both digests: the command, its files with their state, the target and the requester. */
const frameOf = (domain: string, fields: PermitFields, by: RequestedBy): Framed => {
  const { argv, executable, cwd, env, terminal, confinement, account, sandbox } = fields
  const { stdin } = by
  return new Framed(domain)
    .add('outlives', by.outlives)
    .add('argv', ...argv)
    .tree('executable', executable)
    .add('cwd', cwd)
    .tree('env', env)
    .tree('stdin', stdin === null || stdin === 'open' ? stdin : { bytes: stdin.bytes, sha256: stdin.sha256 })
    .tree('terminal', terminal === null ? null : { raw: terminal.raw === true })
    .tree('confinement', { ...confinement, umask: confinement.umask ?? undefined })
    .tree('account', account)
    .tree('sandbox', sandbox)
    .add('door', by.door)
    .tree('asker', { ...by.asker, name: null })
    .tree('target', by.target)
}

/** Fields of the digest for one use only: the directory, the limits, the session, and why an approver is needed. */
const frameOnce = (
  framed: Framed,
  { cwd, cwd_descriptor, caps, terminal, record = false, watch = false, matched_acl, principal }: PermitFields,
  { ask }: RequestedBy,
  alwaysAsk: string | null,
): Framed =>
  framed
    .add('ask', ask)
    .add('always_ask', alwaysAsk)
    .tree('directory', directoryOf(cwd, cwd_descriptor))
    .tree('caps', caps)
    .tree('terminal_size', terminal)
    .add('observed', record, watch)
    .add('matched_acl', matched_acl)
    .tree('principal', principal)

const directoryOf = (cwd: string, descriptor: number | null): readonly bigint[] | string => {
  try {
    const { dev, ino } = descriptor === null ? statSync(cwd, { bigint: true }) : fstatSync(descriptor, { bigint: true })
    return [dev, ino]
  } catch (error) {
    return errorText(error)
  }
}
