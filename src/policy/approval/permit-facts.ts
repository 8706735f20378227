import { fstatSync, statSync } from 'node:fs'

import { attempt, errorText } from '../../base/errors.ts'
import { realPath } from '../../base/real-path.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { finderIn } from '../executable.ts'
import { fileMark, hashFile, type FilePin } from '../file-mark.ts'
import { interpretersOf } from '../interpreters.ts'
import type { PermitFields } from '../permit.ts'
import { programPlace } from '../sandbox/seen-from.ts'
import { alwaysAskOf } from './always-ask.ts'
import type { AlwaysAskRule } from './ask-rules.ts'
import { Framed } from './framed.ts'
import { meaningOf } from './meanings.ts'
import type { AskedStdin, Question } from './question.ts'

/** What is bound beside the permit itself. */
export interface AskedBy extends Pick<Question, 'door' | 'asker' | 'target' | 'ask'> {
  readonly stdin: AskedStdin | null
  /** Variables that the caller set. */
  readonly variables: readonly string[]
  readonly always_ask: readonly AlwaysAskRule[]
}

/** What is known of a run before it is allowed. */
export interface PermitFacts extends Pick<
  Question,
  'permit_sha256' | 'grant_sha256' | 'executable' | 'programs' | 'opaque' | 'script' | 'always_ask'
> {
  /** Files that must still be what they are when it starts. */
  readonly pins: readonly FilePin[]
}

/** Longest text on its way to a human. */
const MAX_WHY = 512

/** Looks at every file that the run has to do with, now, and binds all of it in two digests. */
export const permitFacts = (fields: PermitFields, by: AskedBy): PermitFacts => {
  const path = fields.env['PATH'] ?? SCRUBBED_PATH
  const { executable, argv, sandbox } = fields
  const inImage = sandbox !== null && sandbox.image !== null
  const meaning = meaningOf([executable.path, ...argv.slice(1)], by.variables, { cwd: fields.cwd, path: inImage ? null : path })
  // Of an image, the name of the directory binds the image.
  const place = attempt(() => programPlace(fields)) ?? executable.path
  const real = inImage ? place : realOf(place)
  const chain = inImage ? [] : attempt(() => interpretersOf(executable.path, finderIn(path)).map(({ interpreter }) => interpreter))
  const scripts = meaning.scripts.map((script) => ({ path: script, read: hashFile(script) }))
  const unread = scripts.find(({ read }) => read === null)
  const opaque =
    unread !== undefined
      ? `${unread.path} cannot be read whole, so that nobody knows what it does`
      : (meaning.opaque ??
        (inImage ? 'its programs stand in an image, where they may go by any name' : null) ??
        (chain === null ? `${executable.path} names an interpreter that cannot be followed` : null))
  const programs = [...new Set([real, ...scripts.map((script) => realOf(script.path))])]
  const pins = [...new Set([place, ...programs, ...(chain ?? []), ...meaning.scripts, ...meaning.others.map((other) => other.real)])].map(
    (file) => ({
      path: file,
      mark: fileMark(file),
    }),
  )
  const asks = alwaysAskOf(by.always_ask, { ...meaning, opaque }, path)
  const always_ask = asks?.reason ?? null
  const hashes = scripts.map((script) => script.read?.sha256 ?? null)
  const common = (domain: string): Framed => frameOf(domain, fields, by).tree('pins', pins).tree('scripts', hashes)
  const isSeen = by.stdin !== 'open' && (fields.terminal === null || fields.terminal.raw === true)
  // What runs again must be what was allowed, so each file that the words name must be known.
  const mayLast = isSeen && meaning.isTold && unread === undefined && chain !== null && asks?.isEachTime !== true
  const [first] = scripts
  return {
    permit_sha256: frameOnce(common('x0x-permit-v1'), fields, by, always_ask).digest(),
    grant_sha256: mayLast ? common('x0x-grant-v1').digest() : null,
    executable: real,
    // No list has what cannot be told, or stands in an image, where it may go by any name.
    programs: meaning.isTold && !inImage ? programs : [],
    opaque: opaque?.slice(0, MAX_WHY) ?? null,
    script: scriptOf(first),
    always_ask: always_ask?.slice(0, MAX_WHY) ?? null,
    pins,
  }
}

const scriptOf = (first: { readonly path: string; readonly read: ReturnType<typeof hashFile> } | undefined): Question['script'] =>
  first === undefined || first.read === null ? null : { path: first.path, sha256: first.read.sha256 }

const realOf = (path: string): string => attempt(() => realPath(path)) ?? path

/** What "always" binds as well as "once": the command, its files as they stand, where and for whom it runs. */
const frameOf = (domain: string, fields: PermitFields, by: AskedBy): Framed => {
  const { argv, caps, executable, cwd, env, terminal, confinement, account, sandbox } = fields
  // Whoever allowed a command for ever has not allowed that it outlives its caller.
  const framed = caps.keep_bytes === null ? new Framed(domain) : new Framed(domain).add('detached', 'true')
  return framed
    .add('argv', ...argv)
    .tree('executable', executable)
    .add('cwd', cwd)
    .tree('env', env)
    .tree('stdin', by.stdin)
    .tree('terminal', terminal === null ? null : { raw: terminal.raw === true })
    .tree('confinement', { ...confinement, umask: confinement.umask ?? undefined })
    .tree('account', account)
    .tree('sandbox', sandbox)
    .add('door', by.door)
    .tree('asker', { ...by.asker, name: null })
    .tree('target', by.target)
}

/** What "once" binds beyond that: this directory, these limits, this session, and when a human must be asked, and why. */
const frameOnce = (
  framed: Framed,
  { cwd, cwd_descriptor, caps, terminal, matched_acl, principal }: PermitFields,
  { ask }: AskedBy,
  alwaysAsk: string | null,
): Framed =>
  framed
    .add('ask', ask)
    .add('always_ask', alwaysAsk)
    .tree('directory', directoryOf(cwd, cwd_descriptor))
    .tree('caps', caps)
    .tree('terminal_size', terminal)
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
