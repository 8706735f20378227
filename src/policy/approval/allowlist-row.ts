import { attempt } from '../../base/errors.ts'
import { shellWords } from '../../base/format.ts'
import { realPath } from '../../base/path-resolution.ts'
import type { Grant, ModeOverride } from '../../protocol/desk/messages.ts'
import { overrideText } from '../../protocol/desk/mode-command.ts'
import { MAX_OPAQUE_GRANT_MS } from '../../protocol/limits/approvals.ts'
import { settingsOf } from '../modes.ts'
import type { StoredPattern } from './judge.ts'
import { parsePathPattern, tooWide } from './path-pattern.ts'
import { isTransparentFile } from './transparent.ts'

/** A row, grant or saved mode of the approval store that has no effect. */
export interface Ineffective {
  readonly agent: string
  /** The pattern, the ID of the grant, or the mode that release 0.2 saved. */
  readonly row: string
  readonly why: string
  /** Command line that restores the intended permission, or removes the row. */
  readonly remedy: string
}

/** The reason why an allowlist row has no effect, or less than it says. */
export interface RowProblem {
  readonly why: string
  /** Command line that allows what the row intended, or null if the intention is unknown. */
  readonly instead: string | null
  /** True if the store refuses a row with this pattern. */
  readonly isRefused: boolean
}

interface Row extends StoredPattern {
  /** Path of the program that the row allowed last. */
  readonly lastResolvedPath?: string | undefined
}

/** The agents, grants and modes of an approval store. */
export interface StoredRows {
  readonly agents: Readonly<Record<string, { readonly allowlist?: readonly Row[] | undefined }>>
  readonly grants: readonly Grant[]
  readonly modes?: Readonly<Record<string, ModeOverride>> | undefined
}

const change = (what: 'add' | 'remove', agent: string, pattern: string, opaque = false): string =>
  shellWords(['x0x', 'approvals', 'allowlist', what, agent, pattern, ...(opaque ? ['--opaque'] : [])])

const isTransparent = (path: string): boolean => {
  const real = attempt(() => realPath(path))
  return real !== null && isTransparentFile(path, real)
}

/** The pattern with the links of its directories resolved, because programs are compared by resolved path. Null if it has no links. */
const behindLinks = (text: string): string | null => {
  const [fixed = ''] = /^[^*?]*(?=\/[^/]*[*?])|^[^*?]*$/.exec(text) ?? []
  const real = attempt(() => realPath(fixed))
  return real === null || real === fixed ? null : `${real}${text.slice(fixed.length)}`
}

/** Why a row of an agent has no effect or less than it says, or null if it has its full effect. */
export const rowProblem = (agent: string, { pattern: text, opaque, lastResolvedPath: last = '' }: Row, home: string): RowProblem | null => {
  if (agent === '*') return { why: 'a row has one agent', instead: change('add', 'AGENT', text), isRefused: true }
  const pattern = parsePathPattern(text, home)
  const problem = typeof pattern === 'string' ? pattern : tooWide(pattern)
  if (problem !== null)
    return { why: problem, instead: last.startsWith('/') ? change('add', agent, last, !isTransparent(last)) : null, isRefused: true }
  const whole = text.replace(/^~(?=\/)/, home)
  const isOpaque = /[*?]/.test(text) || !isTransparent(whole)
  const [bracketed] = /^.*?(?:\[[^/]*\]|\{[^/]*\})[^/]*/.exec(whole) ?? []
  if (bracketed !== undefined && attempt(() => realPath(bracketed)) === null)
    return { why: 'brackets and braces are not wildcards; only *, ? and ** are', instead: null, isRefused: true }
  if (/^[^*?]*\s[^*?]*$/.test(text) && attempt(() => realPath(whole)) === null)
    return {
      why: 'a pattern is a program without arguments, and no file has that name',
      instead: change('add', agent, text.split(/\s/)[0]!, isOpaque),
      isRefused: true,
    }
  const real = behindLinks(whole)
  if (real !== null)
    return {
      why: `it is a link to ${real}, and only that path is compared`,
      instead: change('add', agent, real, isOpaque),
      isRefused: true,
    }
  if (opaque === true || !isOpaque) return null
  const what = /[*?]/.test(text) ? 'its programs' : text.slice(text.lastIndexOf('/') + 1)
  const why = `${what} can start other programs, so ${agent} could run anything with it`
  return { why, instead: change('add', agent, text, true), isRefused: false }
}

/** Time at which a grant ends, in epoch milliseconds. A grant of an opaque program never lasts longer than `MAX_OPAQUE_GRANT_MS`. */
export const grantEnd = ({
  executable,
  created_at_ms,
  expires_at_ms,
}: Pick<Grant, 'executable' | 'created_at_ms' | 'expires_at_ms'>): number =>
  isTransparent(executable) ? expires_at_ms : Math.min(expires_at_ms, created_at_ms + MAX_OPAQUE_GRANT_MS)

const ineffectivePatterns = (agent: string, allowlist: readonly Row[], home: string): Ineffective[] =>
  allowlist.flatMap((row) => {
    const problem = rowProblem(agent, row, home)
    if (problem === null) return []
    const { pattern } = row
    const steps = [problem.isRefused ? change('remove', agent, pattern) : null, problem.instead]
    return [{ agent, row: pattern, why: problem.why, remedy: steps.filter((step) => step !== null).join(' && ') }]
  })

const UNLIMITED =
  'an older release granted it without limits of time and output, so it has no effect; allow it again at the next request: x0x approvals allow-always'
const ENDED = 'an older release granted it for longer, and a grant of an opaque command ends after a day'

/** Why a grant that has not expired covers no run, or null if it is valid. */
const grantProblem = (grant: Grant, now: number): string | null => {
  if (grant.timeout_ms === undefined || grant.max_output_bytes === undefined) return UNLIMITED
  return grantEnd(grant) <= now ? ENDED : null
}

/** Reports a mode that an earlier release saved. The agent may run nothing until the operator runs the command lines. */
const ineffectiveModes = (agent: string, override: ModeOverride): Ineffective => {
  const { security, ask } = settingsOf(override)
  const words = Object.entries({ security, ask }).flatMap(([key, value]) => (value === null ? [] : [`${key}=${value}`]))
  const line = (...argv: string[]): string => shellWords(['x0x', 'exec-mode', ...argv, '--agent', agent])
  return {
    agent,
    row: `saved ${overrideText(override)}`,
    why: 'an earlier release saved it, and the agent may run nothing until it is saved again or removed. Only security and ask can be saved, for commands on this host; host and node belong in [[agents.list]] of the configuration',
    remedy: words.length === 0 ? line('off', '--saved') : `${line('set', ...words)} && ${line('save')}`,
  }
}

/** Lists all rows, grants and modes of a store that have no effect or end earlier than they say. */
export const ineffectiveRows = (
  { agents = {}, grants = [], modes = {} }: Partial<StoredRows>,
  home: string,
  now: number,
): Ineffective[] => [
  ...Object.entries(agents).flatMap(([agent, { allowlist = [] }]) => ineffectivePatterns(agent, allowlist, home)),
  ...grants.flatMap((grant) => {
    const why = grant.expires_at_ms > now ? grantProblem(grant, now) : null
    const { agent, id } = grant
    return why === null ? [] : [{ agent, row: id, why, remedy: `x0x approvals revoke ${id}` }]
  }),
  ...Object.entries(modes).map(([agent, override]) => ineffectiveModes(agent, override)),
]
