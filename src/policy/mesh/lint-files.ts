import { isWithin } from '../sandbox/autostart-places.ts'
import { quote } from '../tokens.ts'
import type { Acl, AllowEntry } from './acl.ts'
import { CONFINEMENT_KEYS, UNCONFINED } from './confinement.ts'
import { type FileGrant, hasRight } from './file-grants.ts'

/** Reports files tables that have no effect, or that allow something other than they seem to, each with file, line and key. */
export const lintFiles = (acl: Acl): string[] => {
  const earlier = new Map<string, FileGrant[]>()
  return acl.allow.flatMap((entry, entryIndex) => {
    const key = `${entry.agent_id}:${entry.machine_id}`
    const before = earlier.get(key) ?? []
    earlier.set(key, before)
    return entry.files.flatMap((grant, index) => {
      const place = `${acl.source ?? ''}:${grant.line}: exec.allow[${entryIndex}].files[${index}]: `
      const found = [...lintEntry(entry, index), ...lintUnreached(before, grant)]
      before.push(grant)
      return found.map((text) => place + text)
    })
  })
}

/** Confinement restricts processes. A file command has none of its own. */
const lintEntry = ({ confinement }: AllowEntry, index: number): string[] => {
  const keys = CONFINEMENT_KEYS.filter((key) => key !== 'contain' && confinement[key] !== UNCONFINED[key])
  return index > 0 || keys.length === 0
    ? []
    : [`${keys.join(', ')} of the entry does not apply to files: x0xd reads and writes them itself; "owner" names the owner of new files`]
}

/** The first table whose root contains the path and that has the right applies. */
const lintUnreached = (earlier: readonly FileGrant[], grant: FileGrant): string[] =>
  (['read', 'write'] as const).flatMap((right) => {
    const first = hasRight(grant, right) ? earlier.find((one) => hasRight(one, right) && isWithin(grant.root, one.root)) : undefined
    return first === undefined
      ? []
      : [`${right} = true has no effect: line ${first.line} already allows it below ${quote(first.root)}; put the smaller root first`]
  })
