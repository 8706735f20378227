import { closeSync, constants, fstatSync, openSync, readSync, readdirSync } from 'node:fs'
import { attempt, errnoOf } from './errors.ts'

/** As much of a program as execve(2) looks at for `#!`, and the ELF header with its program headers. */
export const HEAD_BYTES = 4_096
const PT_INTERP = 3
const ELF_MAGIC = '\u007fELF'
/** Of macOS, in either order of bytes, and for several processors. */
const MACH_O = /^(feedface|feedfacf|cefaedfe|cffaedfe|cafebabe)$/

/** What the kernel starts for a program. */
export type ProgramFormat =
  /** The file itself, or we may not read it, which the kernel need not. */
  | { readonly kind: 'direct' }
  /** Another program: the loader of an ELF file, or a script's interpreter and its one argument. */
  | { readonly kind: 'through'; readonly interpreter: string; readonly argument: string; readonly isScript: boolean }
  /** Nothing. */
  | { readonly kind: 'foreign' }

const DIRECT: ProgramFormat = { kind: 'direct' }

/** Reads the beginning of a file. Throws what open(2) and read(2) do; never blocks, whatever stands there. */
export const programFormat = (path: string): ProgramFormat => {
  const beginning = beginningOf(path)
  return beginning === null ? DIRECT : formatOf(beginning)
}

/** What the kernel starts for a file that begins so. */
export const formatOf = (beginning: Beginning): ProgramFormat => {
  if (MACH_O.test(beginning.head.toString('hex', 0, 4))) return DIRECT
  return beginning.head.toString('latin1', 0, 4) === ELF_MAGIC ? loaderOf(beginning) : interpreterOf(beginning.head)
}

export interface Beginning {
  /** The first bytes, at most `HEAD_BYTES`. */
  readonly head: Buffer
  /** Of the whole file, in bytes. */
  readonly size: number
}

/** Null where we may not read what the kernel may still execute. */
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

/** By `process.arch`: the machines (elf(5), e_machine) whose programs its kernel may run. */
const MACHINES: Readonly<Record<string, readonly number[]>> = { x64: [62, 3], arm64: [183, 40], riscv64: [243] }

/** Where the kernel lists further formats (binfmt_misc), such as those of emulated machines, beside two files of its own. */
const FURTHER_FORMATS = '/proc/sys/fs/binfmt_misc'

const hasFurtherFormats = (): boolean => (attempt(() => readdirSync(FURTHER_FORMATS)) ?? []).length > 2

/** Little-endian, of a machine that runs here, with program headers inside the file: anything else the kernel does not know. */
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

/** Of a 64-bit file; others are left to the kernel. */
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

/** Text is bytes here, as for the kernel: a path with letters of other scripts must still be found. */
const interpreterOf = (head: Buffer): ProgramFormat => {
  const end = head.indexOf(0x0a)
  const found = /^#![ \t]*([^ \t]+)[ \t]*(.*)$/.exec(head.toString('utf8', 0, end === -1 ? head.length : end))
  if (found === null) return { kind: 'foreign' }
  const [, interpreter = '', argument = ''] = found
  return { kind: 'through', interpreter, argument: argument.trim(), isScript: true }
}
