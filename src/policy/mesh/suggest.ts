import { statSync } from 'node:fs'
import { isAbsolute, posix } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { shellWords } from '../../base/format.ts'
import { findMetacharacter, parseToken } from '../../protocol/argv-template.ts'
import { isQuotedLine } from '../../protocol/denial-text.ts'
import { isFileCommand, parseFileCommand } from '../../protocol/file-command.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { opaqueNote } from '../escapes.ts'
import { quote } from '../tokens.ts'
import { rightOf } from './file-grants.ts'

/** The pair for which an entry is suggested. */
export interface SuggestedFor {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly description: string
}

/** Why no entry can allow exactly this argv, or null if one can. */
export const unsuggestable = (argv: readonly string[]): string | null => {
  if (argv.some((text) => !text.isWellFormed())) return 'it is not valid Unicode'
  if (isFileCommand(argv)) {
    const table = filesFor(argv)
    return table === null ? 'it is not a valid file command' : table.root === '/' ? 'the root would be "/", which is all files' : null
  }
  const meta = findMetacharacter(argv)
  if (meta !== null) return `token ${meta.token} contains ${JSON.stringify(meta.character)}, which every request is refused for`
  const [program = ''] = argv
  if (argv.length > 0 && (program === '' || (program.includes('/') && !isAbsolute(program))))
    return 'its program is neither an absolute path nor a bare name'
  const slot = argv.find((text) => typeof parseToken(text) === 'string' || (parseToken(text) as { kind: string }).kind !== 'literal')
  return argv.length === 0 || slot !== undefined
    ? `it has ${slot === undefined ? 'no program' : `${slot}, which means more in a file`}`
    : null
}

interface SuggestedTable {
  readonly root: string
  readonly keys: readonly ('read' | 'write' | 'create_dirs')[]
  /** The requester looked at a path, perhaps before a copy to it. */
  readonly isLook: boolean
}

const isDirectory = (path: string): boolean => attempt(() => statSync(path).isDirectory()) === true

/**
 * The smallest table that allows a file command, or null for an invalid one. The root of a table is a directory of this machine. A copy to a
 * directory must read that it is one.
 */
const filesFor = (argv: readonly string[]): SuggestedTable | null => {
  const command = parseFileCommand(argv)
  if (command === null) return null
  const { op, path } = command
  const isRoot = op === 'list' || isDirectory(path)
  const right = rightOf(command)
  const keys =
    right === 'mkdir' ? (['write', 'create_dirs'] as const) : right === 'write' && isRoot ? (['read', 'write'] as const) : [right]
  return { root: isRoot ? path : posix.dirname(path), keys, isLook: op === 'stat' }
}

/** Warnings for the operator about an argv with closed stdin. */
export const suggestionWarnings = (argv: readonly string[]): string[] => {
  const table = isFileCommand(argv) ? filesFor(argv) : null
  if (table !== null)
    return [
      `the entry allows all files below ${quote(table.root)}, not only this one`,
      ...(table.isLook ? ['the requester looked at this path, as before a copy: to allow copies to it, add write = true'] : []),
    ]
  const [program] = argv
  if (program === undefined) return []
  if (isQuotedLine(argv))
    return [
      `${quote(program)} is one word: the command was probably typed within quotes, so the entry is commented out. Without the quotes: -- ${shellWords(program.trim().split(/\s+/))}`,
    ]
  const note = opaqueNote(program, false)
  return note === null ? [] : [note]
}

const tomlEscape = (character: string): string => `\\U${character.codePointAt(0)!.toString(16).padStart(8, '0')}`

/**
 * A TOML string on one line. All characters except printable ASCII are escaped, because a remote agent chose the text. A JSON string is a
 * valid basic string of TOML except for DEL.
 */
const tomlText = (text: string): string => JSON.stringify(text).replaceAll(/[^ -~]/gu, tomlEscape)

/**
 * An ACL entry that allows the pair exactly this argv, without templates and stdin, and lets the pair query it. It is commented out if the
 * argv looks like a command line in quotes, which names no program.
 */
export const entryText = (suggested: SuggestedFor, argv: readonly string[]): string => {
  const entry = liveEntryText(suggested, argv)
  return isQuotedLine(argv) ? entry.replaceAll(/^(?=.)/gm, '# ') : entry
}

const liveEntryText = ({ agent_id, machine_id, description }: SuggestedFor, argv: readonly string[]): string => `
[[exec.allow]]
description = ${tomlText(description)}
agent_id = ${tomlText(agent_id)}
machine_id = ${tomlText(machine_id)}
discoverable = true

${isFileCommand(argv) ? filesText(argv) : commandText(argv)}`

const commandText = (argv: readonly string[]): string => `[[exec.allow.commands]]
argv = [${argv.map(tomlText).join(', ')}]
stdin = false
`

/** An invalid file command gives a table without rights, which the daemon refuses. */
const filesText = (argv: readonly string[]): string => {
  const { root = '', keys = [] } = filesFor(argv) ?? {}
  return `[[exec.allow.files]]
root = ${tomlText(root)}
${keys.map((key) => `${key} = true\n`).join('')}`
}
