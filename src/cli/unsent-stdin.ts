import { type Stats, fstatSync, readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs'
import { AppError, attempt } from '../base/errors.ts'
import { shellWords } from '../base/format.ts'
import { statOf } from '../base/process-stat.ts'
import { shownLine } from '../base/visible-text.ts'
import { type Output, write } from './output.ts'
import { type StdinData, pipeData, socketData } from './stdin-data.ts'

/** An open file of a process. */
interface OpenFile {
  /** Kind and number, such as `pipe:[4711]`, or a path. */
  readonly target: string
  readonly position: number
  readonly canRead: boolean
  /** A program that the process starts does not get it. */
  readonly isPrivate: boolean
}

const ACCESS_MODE = 3
const WRITE_ONLY = 1
const CLOSE_ON_EXEC = 0o2000000

const targetOf = (pid: number | 'self', fd: string): string | null => attempt(() => readlinkSync(`/proc/${pid}/fd/${fd}`))

const openFileOf = (pid: number | 'self', fd: string): OpenFile | null => {
  const target = targetOf(pid, fd)
  const info = attempt(() => readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'utf8'))
  const [, position] = /^pos:\s*(\d+)$/m.exec(info ?? '') ?? []
  const [, flags] = /^flags:\s*([0-7]+)$/m.exec(info ?? '') ?? []
  if (target === null || position === undefined || flags === undefined) return null
  const mode = Number.parseInt(flags, 8)
  const [canRead, isPrivate] = [(mode & ACCESS_MODE) !== WRITE_ONLY, (mode & CLOSE_ON_EXEC) !== 0]
  return { target, position: Number(position), canRead, isPrivate }
}

/** Shells that open the file of a redirection before they fork. All others open it in the process of the command. */
const OPENS_FIRST = /\/(?:dash|busybox)$/
/** Shells keep the standard input that a redirection replaces under a number from here on. */
const FIRST_KEPT = 10

/** Whether the shell has opened this unread file for a command, and keeps its own standard input meanwhile. A script is a file too. */
const isOpenedForCommand = ({ position }: OpenFile, fds: readonly string[]): boolean => {
  const directory = `/proc/${process.ppid}`
  if (position > 0 || !OPENS_FIRST.test(attempt(() => readlinkSync(`${directory}/exe`)) ?? '')) return false
  const isScript = (fd: string): boolean | null => attempt(() => statSync(`${directory}/fd/${fd}`).isFile())
  return fds.some((fd) => Number(fd) >= FIRST_KEPT && openFileOf(process.ppid, fd)?.isPrivate === true && isScript(fd) === false)
}

/**
 * Whether the parent process can read this input as well, as a shell can whose loop reads it. Null if that cannot be known. Two processes
 * with one open file have the same position in it.
 */
const isShared = (own: OpenFile, isFile: boolean): boolean | null => {
  const { ppid } = process
  // The parent is outside of this container, such as the engine that started a command in it.
  if (ppid === 0) return false
  const fds = attempt(() => readdirSync(`/proc/${ppid}/fd`))
  if (fds === null) return null
  const parentHasIt = fds.some((fd) => {
    if (targetOf(ppid, fd) !== own.target) return false
    const file = openFileOf(ppid, fd)
    return file !== null && file.canRead && file.position === own.position
  })
  return parentHasIt && !(isFile && isOpenedForCommand(own, fds))
}

/** PF_FORKNOEXEC of proc_pid_stat(5): the process runs the program of its parent. */
const FORKED_ONLY = 0x40

/** Whether the parent is a subshell that has read something. It is a loop over its input, and reads the rest itself. */
const isReadByLoop = (): boolean => {
  const isSubshell = (Number(statOf(process.ppid)[6]) & FORKED_ONLY) !== 0
  return isSubshell && /^rchar: [1-9]/.test(attempt(() => readFileSync(`/proc/${process.ppid}/io`, 'utf8')) ?? '')
}

/** Standard input of a command that does not read it. */
class UnreadInput {
  readonly #info: Stats
  /** Null for a file, because its size tells. */
  #data: StdinData | null = null

  constructor(info: Stats) {
    this.#info = info
  }

  /** Data that only this process could read, and that is lost when it ends. */
  async isLost(): Promise<boolean> {
    const own = openFileOf('self', '0')
    return own !== null && own.canRead && isShared(own, this.#info.isFile()) === false && this.#hasData(own)
  }

  /** Data that another process may read. If a part of a file was read, another process reads the rest. */
  async isLeft(): Promise<boolean> {
    const own = openFileOf('self', '0')
    // Only Linux shows open files. On other systems, the size of a pipe is the number of its waiting bytes.
    if (own === null) return process.platform !== 'linux' && this.#info.size > 0
    // A look at a shared socket would take data.
    if (!own.canRead || own.position > 0 || (this.#info.isSocket() && this.#data === null) || isReadByLoop()) return false
    return this.#hasData(own)
  }

  async #hasData({ position }: OpenFile): Promise<boolean> {
    if (this.#info.isFile()) return fstatSync(0).size > position
    this.#data ??= this.#info.isSocket() ? socketData() : pipeData()
    return this.#data.isWaiting()
  }
}

/** Null if standard input is closed, a terminal or another device. */
const unreadInput = (): UnreadInput | null => {
  const info = attempt(() => fstatSync(0))
  return info !== null && (info.isFile() || info.isFIFO() || info.isSocket()) ? new UnreadInput(info) : null
}

/** Exit status of a command that ended with 0 but did not get its input. */
const EXIT_NOT_SENT = 255

export interface WithoutStdin {
  readonly program: string
  /** The words after the program. */
  readonly argv: readonly string[]
  /** Options that send standard input. Null for a detached run, which has none. */
  readonly send: readonly string[] | null
  readonly stderr: Output
  /** True: no note about data that another process can read. */
  readonly quiet: boolean
}

/** Lines that say how to send the data, and how to run without it. They have the options that the user gave. */
const nextLines = ({ program, argv, send }: WithoutStdin): string[] => {
  const dashes = argv.indexOf('--')
  const at = dashes === -1 ? argv.length : dashes
  const lineWith = (options: readonly string[]): string =>
    `Try: ${program} ${shellWords([...argv.slice(0, at), ...options, ...argv.slice(at)])}`
  const sending =
    send === null
      ? ['A detached run has no stdin', 'Try: x0x cp - HOST:PATH   (to copy the data into a file)']
      : [`${lineWith(send)}   (to send it)`]
  return [...sending, `${lineWith([])} < /dev/null   (to run without it)`]
}

/**
 * Runs a command that does not read standard input, and returns its exit status. It reports all data that is lost: it throws `bad_request`
 * before the run if there is data that only this process could read. If such data arrives during the run, the status is not 0.
 */
export const withoutStdin = async (init: WithoutStdin, run: () => Promise<number>): Promise<number> => {
  const input = unreadInput()
  if (input === null) return run()
  const next = nextLines(init)
  if (await input.isLost())
    throw new AppError('bad_request', 'standard input has data that would not be sent (stdin_not_sent), so nothing was run', {
      data: { next: next.join('\n') },
    })
  const status = await run()
  const tell = async (first: string): Promise<boolean> => {
    const indent = ' '.repeat(init.program.length + 2)
    return write(
      init.stderr,
      [`${init.program}: ${first}`, ...next.map((line) => indent + line)].map((line) => `${shownLine(line)}\n`).join(''),
    )
  }
  if (await input.isLost()) {
    await tell('standard input got data during the run, which was not sent (stdin_not_sent)')
    return status === 0 ? EXIT_NOT_SENT : status
  }
  if (!init.quiet && (await input.isLeft())) await tell('standard input has data, which was left for other readers')
  return status
}
