import { readFileSync, readlinkSync } from 'node:fs'
import { basename } from 'node:path'
import { attempt } from '../base/errors.ts'
import type { Environment } from '../base/runtime.ts'

/** Default soft limit of Linux and systemd. */
const USUAL_OPEN_FILES = 1_024
/** Programs that raise their own soft limit, so theirs does not show what they were started with. */
const RAISES_ITS_OWN = /^(node|x0x|x0xd|rexd|rexec|bun|deno|systemd)$/

/** RLIMIT_NOFILE of a process. */
export interface OpenFiles {
  readonly soft: number
  readonly hard: number
}

const numberOf = (text = ''): number => (text === 'unlimited' ? Infinity : Number(text))

/** Null if the system does not report it. */
export const openFilesOf = (pid: number | 'self'): OpenFiles | null => {
  const text = attempt(() => readFileSync(`/proc/${pid}/limits`, 'latin1'))
  const [, soft, hard] = /^Max open files +(\w+) +(\w+)/m.exec(text ?? '') ?? []
  return soft === undefined ? null : { soft: numberOf(soft), hard: numberOf(hard) }
}

const raisesItsOwn = (pid: number): boolean => {
  const path = attempt(() => readlinkSync(`/proc/${pid}/exe`))
  const name = path === null ? attempt(() => readFileSync(`/proc/${pid}/comm`, 'latin1').trim()) : basename(path)
  return name === null || path === process.execPath || RAISES_ITS_OWN.test(name)
}

/**
 * Soft limit of open files at the start of this process. Node.js raises it before our code runs, so it comes from X0X_OPEN_FILES or the
 * parent process. Otherwise it is the usual one.
 */
export const startingLimit = (env: Environment, { soft }: OpenFiles): number => {
  const given = env['X0X_OPEN_FILES']
  if (given !== undefined && /^[1-9][0-9]{0,8}$/.test(given)) return Math.min(soft, Number(given))
  const parent = openFilesOf(process.ppid)
  const isKnown = parent !== null && (parent.soft < parent.hard || !raisesItsOwn(process.ppid))
  return Math.min(soft, isKnown ? parent.soft : USUAL_OPEN_FILES)
}

export interface CommandLimit {
  readonly soft: number
  /** This process has the limit too. If not, `prlimit` sets it for each command. */
  readonly isInherited: boolean
}

let ofCommands: CommandLimit | null = null

/** Null means commands start with the limit of this process. */
export const commandLimit = (): CommandLimit | null => ofCommands

export const setCommandLimit = (limit: CommandLimit): void => {
  ofCommands = limit
}
