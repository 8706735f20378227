import { readFileSync } from 'node:fs'
import { isAbsolute } from 'node:path'

import { errorText } from '../base/errors.ts'

/** A user that programs may be run as. Supplementary groups are not taken along. */
export interface Account {
  readonly name: string
  readonly uid: number
  readonly gid: number
  readonly home: string
}

export type AccountLookup = { readonly kind: 'found'; readonly account: Account } | { readonly kind: 'refused'; readonly detail: string }

const refused = (detail: string): AccountLookup => ({ kind: 'refused', detail })

/** A number that a kernel takes for a user or group; the highest one means "none". */
const idOf = (text: string | undefined): number | null =>
  /^[0-9]{1,10}$/.test(text ?? '') && Number(text) < 0xffff_ffff ? Number(text) : null

/**
 * The user of this name in passwd(5), as it stands now. Root is refused under any name: what runs as
 * root runs as us. Users of other sources than the file are not found.
 */
export const findAccount = (name: string, file = '/etc/passwd'): AccountLookup => {
  let lines: string[]
  try {
    lines = readFileSync(file, 'utf8').split('\n')
  } catch (error) {
    return refused(errorText(error))
  }
  const fields = lines.map((line) => line.split(':')).find(([first, ...rest]) => first === name && rest.length === 6)
  if (fields === undefined) return refused(`there is no user ${JSON.stringify(name)} in ${file}`)
  const [, , uidText, gidText, , home = ''] = fields
  const [uid, gid] = [idOf(uidText), idOf(gidText)]
  if (uid === null || gid === null) return refused(`${file} gives ${JSON.stringify(name)} no valid uid and gid`)
  if (uid === 0) return refused(`${JSON.stringify(name)} is root (uid 0)`)
  return { kind: 'found', account: Object.freeze({ name, uid, gid, home: isAbsolute(home) ? home : '/' }) }
}

/** What a run as this user needs that this daemon may lack. */
export const accountProblem = (name: string): string | null => {
  if (process.geteuid?.() !== 0) return 'only a daemon that runs as root can run programs as another user'
  const lookup = findAccount(name)
  return lookup.kind === 'refused' ? lookup.detail : null
}
