import { isAbsolute } from 'node:path'
import { findMetacharacter, parseToken } from '../../protocol/argv-template.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { opaqueNote } from '../escapes.ts'

/** Whom an entry is for. */
export interface SuggestedFor {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly description: string
}

/** Why no entry can allow exactly this; null: one can. */
export const unsuggestable = (argv: readonly string[]): string | null => {
  if (argv.some((text) => !text.isWellFormed())) return 'it is no Unicode text'
  const meta = findMetacharacter(argv)
  if (meta !== null) return `token ${meta.token} contains ${JSON.stringify(meta.character)}, which every request is refused for`
  const [program = ''] = argv
  if (argv.length > 0 && (program === '' || (program.includes('/') && !isAbsolute(program))))
    return 'its program is no absolute path and no bare name'
  const slot = argv.find((text) => typeof parseToken(text) === 'string' || (parseToken(text) as { kind: string }).kind !== 'literal')
  return argv.length === 0 || slot !== undefined
    ? `it has ${slot === undefined ? 'no program' : `${slot}, which means more in a file`}`
    : null
}

/** What an operator should know before allowing it, stdin being closed. */
export const suggestionWarnings = (argv: readonly string[]): string[] => {
  const note = argv[0] === undefined ? null : opaqueNote(argv[0], false)
  return note === null ? [] : [note]
}

const tomlEscape = (character: string): string => `\\U${character.codePointAt(0)!.toString(16).padStart(8, '0')}`

/**
 * A word of TOML on one line, whatever a stranger put in it: only ASCII that shows itself stands there as it is, for no letter
 * looks like another and none turns a line around. A JSON string is a basic string of TOML but for DEL.
 */
const tomlText = (text: string): string => JSON.stringify(text).replaceAll(/[^ -~]/gu, tomlEscape)

/** An entry that allows this argv to the pair and nothing else, and tells the pair of it: no slot, no stdin. */
export const entryText = ({ agent_id, machine_id, description }: SuggestedFor, argv: readonly string[]): string => `
[[exec.allow]]
description = ${tomlText(description)}
agent_id = ${tomlText(agent_id)}
machine_id = ${tomlText(machine_id)}
discoverable = true

[[exec.allow.commands]]
argv = [${argv.map(tomlText).join(', ')}]
stdin = false
`
