import { AppError, errorText } from '../../base/errors.ts'
import { parseToml } from '../../base/toml.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { isTable } from '../../protocol/json-table.ts'
import { MAX_ENROL_ACL } from '../../protocol/limits/enrolment.ts'

/** The requester of entries: the operator who enrols hosts. */
export interface EntryOwner {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
}

/** Header of an entry, alone on its line, as all documentation writes it. */
const ENTRY_HEADER = /^[ \t]*\[\[[ \t]*exec[ \t]*\.[ \t]*allow[ \t]*\]\][ \t]*(?:#.*)?$/gmu

/**
 * Completes entries without agent and machine, as an operator writes them for all hosts, by the operator's own. Throws `bad_acl` if the
 * result is not valid TOML or has anything but such entries.
 */
export const ownedEntries = (text: string, owner: EntryOwner, path: string): string => {
  const plain = text.replaceAll('\r\n', '\n')
  const keys = `agent_id = ${JSON.stringify(owner.agent_id)}\nmachine_id = ${JSON.stringify(owner.machine_id)}`
  const owned = `${plain.replaceAll(ENTRY_HEADER, (header) => `${header}\n${keys}`).trimEnd()}\n`
  // Parsed first as written, so that an error names the line of the operator's file.
  const given = parseToml(plain, path, 'bad_acl').value
  for (const entry of entriesOf(given))
    if (isTable(entry) && ('agent_id' in entry || 'machine_id' in entry))
      throw new AppError('bad_acl', `${path}: an entry names an agent or a machine: leave both out, they become those of the operator`)
  const problem = ownedEntriesProblem(owned, owner)
  if (problem !== null) throw new AppError('bad_acl', `${path}: ${problem}`)
  return owned
}

const entriesOf = (value: Readonly<Record<string, unknown>>): readonly unknown[] => {
  const exec = value['exec']
  const allow = isTable(exec) ? exec['allow'] : undefined
  return Array.isArray(allow) ? allow : []
}

/** Why a text is not just entries for this agent on this machine, or null. */
export const ownedEntriesProblem = (text: string, { agent_id, machine_id }: EntryOwner): string | null => {
  if (Buffer.byteLength(text) > MAX_ENROL_ACL) return `the entries have more than ${MAX_ENROL_ACL} bytes`
  let value: Readonly<Record<string, unknown>>
  try {
    ;({ value } = parseToml(text, 'entries', 'bad_acl'))
  } catch (error) {
    return errorText(error)
  }
  const { exec, ...others } = value
  const [other] = Object.keys(others)
  if (other !== undefined) return `has ${JSON.stringify(other)}; it may have only [[exec.allow]] entries`
  const [key] = isTable(exec) ? Object.keys(exec).filter((one) => one !== 'allow') : []
  if (key !== undefined) return `has exec.${key}; it may have only [[exec.allow]] entries`
  const entries = entriesOf(value)
  if (entries.length === 0) return 'has no [[exec.allow]] entry'
  const isOwned = (entry: unknown): boolean => isTable(entry) && entry['agent_id'] === agent_id && entry['machine_id'] === machine_id
  return entries.every(isOwned)
    ? null
    : 'an entry is not for the agent and the machine of the operator; begin each with a line [[exec.allow]]'
}

/** The ACL with these entries at its end. Unchanged if they are there already, as after an interrupted enrolment. */
export const withEntries = (acl: string, entries: string): string => {
  const block = `\n# From the enrolment of this machine.\n${entries}`
  return acl.endsWith(block) ? acl : `${acl.trimEnd()}\n${block}`
}

/** A complete ACL with only these entries, to check them. */
export const aclOfEntries = (entries: string, directory: string): string =>
  withEntries(`[exec]\nenabled = true\naudit_log_path = ${JSON.stringify(`${directory}/exec.log`)}\ndefault_cwd = "/"\n`, entries)

/** True if the ACL of `--init` has not been edited, or has only the entries of this enrolment. */
export const isUntouched = (acl: string, initial: string, entries: string): boolean =>
  acl === initial || acl === withEntries(initial, entries)
