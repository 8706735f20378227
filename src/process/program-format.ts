import { accessSync, closeSync, constants, openSync, readSync, realpathSync, statSync } from 'node:fs'
import { dirname } from 'node:path'

import { errorText } from '../base/errors.ts'
import type { Account } from '../policy/account.ts'
import { MAX_INTERPRETERS } from '../protocol/containment-limits.ts'

/** As much of a program as execve(2) looks at for `#!`, and the ELF header with its program headers. */
const HEAD_BYTES = 4_096
const PT_INTERP = 3
const ELF_MAGIC = '\u007fELF'
/** Of macOS, in either order of bytes, and for several processors. */
const MACH_O = /^(feedface|feedfacf|cefaedfe|cffaedfe|cafebabe)$/

/** What a number of passwd(5) may do by the mode alone: without supplementary groups that is all there is. */
const mayExecute = (path: string, { uid, gid }: Account): boolean => {
  const { mode, uid: owner, gid: group } = statSync(path)
  const shift = uid === owner ? 6 : gid === group ? 3 : 0
  return ((mode >> shift) & 1) === 1
}

/** Throws where this user, or we ourselves, could not execute it. */
const checkAccess = (path: string, account: Account | null): void => {
  accessSync(path, constants.X_OK)
  if (account === null) return
  const real = realpathSync(path)
  for (let at = real; ; at = dirname(at)) {
    if (!mayExecute(at, account)) throw new Error(`${account.name} may not ${at === real ? 'execute' : 'enter'} ${at}`)
    if (at === dirname(at)) return
  }
}

/** The beginning of a file; null where we may not read what the kernel may still execute. */
const headOf = (path: string): Buffer | null => {
  let file: number
  try {
    file = openSync(path, 'r')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') return null
    throw error
  }
  try {
    const head = Buffer.alloc(HEAD_BYTES)
    return head.subarray(0, readSync(file, head, 0, HEAD_BYTES, 0))
  } finally {
    closeSync(file)
  }
}

/** The loader that a 64-bit little-endian ELF file names; null where it names none or is another. */
const loaderOf = (head: Buffer): string | null => {
  if (head.length < 64 || head[4] !== 2 || head[5] !== 1) return null
  const [table, size, count] = [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)]
  for (let at = table; at < table + size * count && at + 56 <= head.length; at += size || 56) {
    if (head.readUInt32LE(at) !== PT_INTERP) continue
    const [offset, length] = [Number(head.readBigUInt64LE(at + 8)), Number(head.readBigUInt64LE(at + 32))]
    return offset + length <= head.length ? head.toString('latin1', offset, offset + length - 1) : null
  }
  return null
}

/**
 * Why the kernel would not start this program, or null. Looked at before, because whoever executes it
 * by execvp(3) would hand what is no program to a shell, and a wrapper would report the rest as an exit
 * status of the program's own.
 */
export const launchObstacle = (path: string, account: Account | null, depth = 0): string | null => {
  try {
    checkAccess(path, account)
    const head = headOf(path)
    if (head === null || MACH_O.test(head.toString('hex', 0, 4))) return null
    const next = head.toString('latin1', 0, 4) === ELF_MAGIC ? loaderOf(head) : interpreterOf(head)
    if (next === undefined) return `${path} is neither an ELF file nor a script that names its interpreter`
    if (next === null) return null
    if (depth >= MAX_INTERPRETERS) return `${path} names too many interpreters`
    return launchObstacle(next, account, depth + 1)
  } catch (error) {
    return errorText(error)
  }
}

/** The interpreter of a script; undefined for what is none. */
const interpreterOf = (head: Buffer): string | undefined => {
  const [first = ''] = head.toString('latin1').split('\n')
  return /^#![ \t]*([^ \t]+)/.exec(first)?.[1]
}
