import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs'

/** As much of a program as execve(2) looks at for `#!`, and the ELF header with its program headers. */
const HEAD_BYTES = 4_096
const PT_INTERP = 3
const ELF_MAGIC = '\u007fELF'
/** Of macOS, in either order of bytes, and for several processors. */
const MACH_O = /^(feedface|feedfacf|cefaedfe|cffaedfe|cafebabe)$/

/** What the kernel starts for a program. */
export type ProgramFormat =
  /** The file itself, or we may not read it, which the kernel need not. */
  | { readonly kind: 'direct' }
  /** Another program: the loader of an ELF file, or a script's interpreter and its one argument. */
  | { readonly kind: 'through'; readonly interpreter: string; readonly argument: string }
  /** Nothing. */
  | { readonly kind: 'foreign' }

const DIRECT: ProgramFormat = { kind: 'direct' }

/** Reads the beginning of a file. Throws what open(2) and read(2) do; never blocks, whatever stands there. */
export const programFormat = (path: string): ProgramFormat => {
  const head = headOf(path)
  if (head === null || MACH_O.test(head.toString('hex', 0, 4))) return DIRECT
  return head.toString('latin1', 0, 4) === ELF_MAGIC ? loaderOf(head) : interpreterOf(head)
}

/** Null where we may not read what the kernel may still execute. */
const headOf = (path: string): Buffer | null => {
  let file: number
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EACCES') return null
    throw error
  }
  try {
    if (!fstatSync(file).isFile()) throw new Error(`${path} is not a regular file`)
    const head = Buffer.alloc(HEAD_BYTES)
    return head.subarray(0, readSync(file, head, 0, HEAD_BYTES, 0))
  } finally {
    closeSync(file)
  }
}

/** Of a 64-bit little-endian file; others are left to the kernel. */
const loaderOf = (head: Buffer): ProgramFormat => {
  if (head.length < 64 || head[4] !== 2 || head[5] !== 1) return DIRECT
  const [table, size, count] = [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)]
  for (let at = table; at < table + size * count && at + 56 <= head.length; at += size || 56) {
    if (head.readUInt32LE(at) !== PT_INTERP) continue
    const [offset, length] = [Number(head.readBigUInt64LE(at + 8)), Number(head.readBigUInt64LE(at + 32))]
    if (offset + length > head.length) return DIRECT
    const [interpreter = ''] = head.toString('utf8', offset, offset + length).split('\0')
    return { kind: 'through', interpreter, argument: '' }
  }
  return DIRECT
}

/** Text is bytes here, as for the kernel: a path with letters of other scripts must still be found. */
const interpreterOf = (head: Buffer): ProgramFormat => {
  const end = head.indexOf(0x0a)
  const found = /^#![ \t]*([^ \t]+)[ \t]*(.*)$/.exec(head.toString('utf8', 0, end === -1 ? head.length : end))
  if (found === null) return { kind: 'foreign' }
  const [, interpreter = '', argument = ''] = found
  return { kind: 'through', interpreter, argument: argument.trim() }
}
