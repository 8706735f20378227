import { readFileSync } from 'node:fs'

/** A line of passwd(5). */
export interface PasswdEntry {
  readonly name: string
  /** Null where the file gives no number that a kernel takes. */
  readonly uid: number | null
  readonly gid: number | null
  /** As it is written, and so perhaps empty. */
  readonly home: string
}

const FIELDS = 7

/** A number that a kernel takes for a user or group; the highest one means "none". */
const idOf = (text: string | undefined): number | null =>
  /^[0-9]{1,10}$/.test(text ?? '') && Number(text) < 0xffff_ffff ? Number(text) : null

/** The users of passwd(5) as it stands now, without broken lines; users of other sources are not in it. Throws what the file system throws. */
export const readPasswd = (file = '/etc/passwd'): PasswdEntry[] =>
  readFileSync(file, 'utf8')
    .split('\n')
    .map((line) => line.split(':'))
    .filter((fields) => fields.length === FIELDS)
    .map(([name = '', , uid, gid, , home = '']) => ({ name, uid: idOf(uid), gid: idOf(gid), home }))
