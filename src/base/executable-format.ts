import { closeSync, constants, fstatSync, openSync, readSync, readdirSync } from 'node:fs'
import { attempt, errnoOf } from './errors.ts'

/** Bytes of a program that execve(2) reads for `#!`. They also hold the ELF header and its program headers. */
export const HEAD_BYTES = 4_096
const PT_INTERP = 3
const ELF_MAGIC = '\u007fELF'
/** Mach-O magic numbers of macOS, in both byte orders, and those of fat binaries. */
const MACH_O = /^(feedface|feedfacf|cefaedfe|cffaedfe|cafebabe)$/

/** The program that the kernel starts for an executable file. */
export type ProgramFormat =
  /** The file itself. Also for a file that this user may not read, which the kernel may still execute. */
  | { readonly kind: 'direct' }
  /** Another program, which is the loader of an ELF file, or a script's interpreter with its one argument. */
  | { readonly kind: 'through'; readonly interpreter: string; readonly argument: string; readonly isScript: boolean }
  /** A file that the kernel cannot execute. */
  | { readonly kind: 'foreign' }

const DIRECT: ProgramFormat = { kind: 'direct' }

/** Reads the beginning of a file. Throws the errors of open(2) and read(2), and never blocks. */
export const programFormat = (path: string): ProgramFormat => {
  const beginning = beginningOf(path)
  return beginning === null ? DIRECT : formatOf(beginning)
}

/** The program that the kernel starts for a file with this beginning. */
export const formatOf = (beginning: Beginning): ProgramFormat => {
  if (MACH_O.test(beginning.head.toString('hex', 0, 4))) return DIRECT
  return beginning.head.toString('latin1', 0, 4) === ELF_MAGIC ? loaderOf(beginning) : interpreterOf(beginning.head)
}

export interface Beginning {
  readonly head: Buffer
  /** Size of the whole file in bytes. */
  readonly size: number
}

/** Null if this user may not read the file. The kernel may still execute it. */
const beginningOf = (path: string): Beginning | null => {
  let file: number
  try {
    file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    if (errnoOf(error) === 'EACCES') return null
    throw error
  }
  try {
    const info = fstatSync(file)
    if (!info.isFile()) throw new Error(`${path} is not a regular file`)
    const head = Buffer.alloc(HEAD_BYTES)
    return { head: head.subarray(0, readSync(file, head, 0, HEAD_BYTES, 0)), size: info.size }
  } finally {
    closeSync(file)
  }
}

/** ELF machines (elf(5), e_machine) that a kernel can run, by `process.arch`. */
const MACHINES: Readonly<Record<string, readonly number[]>> = { x64: [62, 3], arm64: [183, 40], riscv64: [243] }

/** The kernel lists further formats here (binfmt_misc), such as those of emulated machines. */
const FURTHER_FORMATS = '/proc/sys/fs/binfmt_misc'

const hasFurtherFormats = (): boolean => (attempt(() => readdirSync(FURTHER_FORMATS)) ?? []).length > 2

/** Whether this kernel knows the file. It must be little-endian, of a supported machine, and with program headers inside the file. */
const isRunnable = (head: Buffer, size: number): boolean => {
  const wide = head[4] === 2
  if ((!wide && head[4] !== 1) || head[5] !== 1 || head.length < (wide ? 64 : 52)) return false
  const [type, machine] = [head.readUInt16LE(16), head.readUInt16LE(18)]
  if ((type !== 2 && type !== 3) || MACHINES[process.arch]?.includes(machine) === false) return false
  const [table, each, count] = wide
    ? [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)]
    : [head.readUInt32LE(28), head.readUInt16LE(42), head.readUInt16LE(44)]
  return each === (wide ? 56 : 32) && count > 0 && table + each * count <= size
}

/** The loader of a 64-bit ELF file. Other files are left to the kernel. */
const loaderOf = ({ head, size: bytes }: Beginning): ProgramFormat => {
  if (!isRunnable(head, bytes)) return hasFurtherFormats() ? DIRECT : { kind: 'foreign' }
  if (head[4] !== 2) return DIRECT
  const [table, size, count] = [Number(head.readBigUInt64LE(32)), head.readUInt16LE(54), head.readUInt16LE(56)]
  for (let at = table; at < table + size * count && at + 56 <= head.length; at += size || 56) {
    if (head.readUInt32LE(at) !== PT_INTERP) continue
    const [offset, length] = [Number(head.readBigUInt64LE(at + 8)), Number(head.readBigUInt64LE(at + 32))]
    if (offset + length > head.length) return DIRECT
    const [interpreter = ''] = head.toString('utf8', offset, offset + length).split('\0')
    return { kind: 'through', interpreter, argument: '', isScript: false }
  }
  return DIRECT
}

/** Decodes as UTF-8, so that an interpreter with non-ASCII letters in its path is found. */
const interpreterOf = (head: Buffer): ProgramFormat => {
  const end = head.indexOf(0x0a)
  const found = /^#![ \t]*([^ \t]+)[ \t]*(.*)$/.exec(head.toString('utf8', 0, end === -1 ? head.length : end))
  if (found === null) return { kind: 'foreign' }
  const [, interpreter = '', argument = ''] = found
  return { kind: 'through', interpreter, argument: argument.trim(), isScript: true }
}
