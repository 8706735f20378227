import type { Environment } from '../../base/environment.ts'
import { DESK } from '../../cli/desk.ts'
import { badFlags, programLine } from '../../cli/program-line.ts'
import { dataDirOf, instanceChoice } from '../../clients/paths.ts'
import { MAX_ASK_TIMEOUT_MS } from '../../protocol/desk-limits.ts'

/** What the command line of `x0x desk` says. */
export interface DeskFlags {
  readonly dataDir: string
  readonly askTimeoutMs: number
}

const timeoutOf = (text: string): number => {
  const ms = Number(text) * 1000
  if (/^[0-9]{1,4}$/.test(text) && ms > 0 && ms <= MAX_ASK_TIMEOUT_MS) return ms
  throw badFlags(`--ask-timeout: ${JSON.stringify(text)} is not a number of seconds from 1 to ${MAX_ASK_TIMEOUT_MS / 1000}`, DESK.name)
}

/** Parses the arguments behind `x0x desk`; a text where help or the version was asked for. Throws `bad_config` naming the flag that is wrong. */
export const parseDeskFlags = (argv: readonly string[], env: Environment): DeskFlags | string => {
  const line = programLine(DESK, argv)
  if (typeof line === 'string') return line
  return {
    dataDir: dataDirOf(instanceChoice({ name: line.value('name'), dataDir: line.value('data-dir') }, env)),
    askTimeoutMs: timeoutOf(line.value('ask-timeout') ?? ''),
  }
}
