import { shellWords } from '../../base/shell-word.ts'
import { attempt } from '../../base/errors.ts'
import { realPath } from '../../base/real-path.ts'
import type { StoredPattern } from './judge.ts'
import { parsePathPattern, tooWide } from './path-pattern.ts'
import { isTransparentFile } from './transparent.ts'

/** A row of an allowlist that does not count, or not for all that it has. */
export interface RowProblem {
  readonly why: string
  /** The command line that allows what was meant; null: nobody can say what that was. */
  readonly instead: string | null
  /** No row can have this pattern. */
  readonly isRefused: boolean
}

interface Row extends StoredPattern {
  /** The program that it last allowed. */
  readonly lastResolvedPath?: string | undefined
}

const change = (what: 'add' | 'remove', agent: string, pattern: string, opaque = false): string =>
  shellWords(['x0x', 'approvals', 'allowlist', what, agent, pattern, ...(opaque ? ['--opaque'] : [])])

const isTransparent = (path: string): boolean => {
  const real = attempt(() => realPath(path))
  return real !== null && isTransparentFile(path, real)
}

/** Why a row of an agent does not count; null: it counts for all that it has. */
export const rowProblem = (agent: string, { pattern: text, opaque, lastResolvedPath: last = '' }: Row, home: string): RowProblem | null => {
  const pattern = parsePathPattern(text, home)
  const problem = typeof pattern === 'string' ? pattern : tooWide(pattern)
  if (problem !== null)
    return { why: problem, instead: last.startsWith('/') ? change('add', agent, last, !isTransparent(last)) : null, isRefused: true }
  if (opaque === true || (!/[*?]/.test(text) && isTransparent(text.replace(/^~(?=\/)/, home)))) return null
  const what = /[*?]/.test(text) ? 'its programs' : text.slice(text.lastIndexOf('/') + 1)
  const why = `${what} may start other programs or run code that the words of a command do not show, so ${agent} could run anything by it`
  return { why, instead: change('add', agent, text, true), isRefused: false }
}

/** Every such row of a store, by its agents. `remedy`: the command line that restores what was meant, or removes the row. */
export const rowProblems = (
  agents: Readonly<Record<string, { readonly allowlist?: readonly Row[] | undefined }>>,
  home: string,
): { readonly agent: string; readonly pattern: string; readonly why: string; readonly remedy: string }[] =>
  Object.entries(agents).flatMap(([agent, { allowlist = [] }]) =>
    allowlist.flatMap((row) => {
      const problem = rowProblem(agent, row, home)
      if (problem === null) return []
      const { pattern } = row
      const steps = [problem.isRefused ? change('remove', agent, pattern) : null, problem.instead]
      return [{ agent, pattern, why: problem.why, remedy: steps.filter((step) => step !== null).join(' && ') }]
    }),
  )
