import { isAbsolute } from 'node:path'
import type { TomlPath, TomlReader } from '../base/toml.ts'
import { replaceInvisible } from '../base/visible-text.ts'
import { type PatternToken, findMetacharacter, literalOf, parseToken } from '../protocol/argv-template.ts'

/** Reads the argv of a command. Empty if invalid, which the reader reports. */
export const readArgv = (toml: TomlReader, path: TomlPath, value: unknown): string[] => {
  const argv = toml.strings(path, value)
  if (value === undefined) toml.problem(path, 'is required: the program and each of its arguments, as in argv = ["df", "-h"]')
  if (argv?.length === 0) toml.problem(path, 'is empty: it names at least the program')
  return argv ?? []
}

/** Reads a token of a command. The first names the program. The reader collects problems. */
export const readToken = (toml: TomlReader, path: TomlPath, text: string, isProgram: boolean): PatternToken => {
  const token = parseToken(text)
  const problem = typeof token === 'string' ? token : isProgram ? programProblem(text, token) : null
  if (problem !== null) toml.problem(path, problem)
  return typeof token === 'string' ? { kind: 'literal', text } : token
}

const programProblem = (text: string, { kind }: PatternToken): string | null => {
  if (kind !== 'literal') return 'a template cannot name the program'
  if (text === '') return 'is empty: it names the program'
  return text.includes('/') && !isAbsolute(text) ? `${JSON.stringify(text)} must be an absolute path or a bare name` : null
}

/** Warns about a literal for which each mesh request is denied. */
export const warnOfMetacharacter = (toml: TomlReader, path: TomlPath, token: PatternToken): void => {
  const meta = findMetacharacter([literalOf(token)])
  if (meta !== null)
    toml.warning(path, `contains ${JSON.stringify(meta.character)}, which every request is refused for: this command can never run`)
}

const SHOWN = 120

/** A token as one line of visible text in double quotes, shortened with an ellipsis. */
export const quote = (text: string | undefined): string => {
  const shown = text ?? ''
  const cut = shown.length > SHOWN ? `${shown.slice(0, SHOWN)}…` : shown
  return replaceInvisible(JSON.stringify(cut), (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`)
}

/** An argv as one line: `["systemctl", "status"]`. */
export const quoteArgv = (argv: readonly string[]): string => `[${argv.map(quote).join(', ')}]`
