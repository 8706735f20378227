import { programLine } from '../../cli/program-line.ts'
import { BUNDLE } from '../../cli/programs.ts'
import type { ConfigFlags } from '../../config/config.ts'

/** What the command line of `x0x bundle` says. */
export interface BundleFlags extends ConfigFlags {
  readonly file: string | null
  /** `-`: standard input. */
  readonly log: string | null
  readonly json: boolean
}

/** Parses the arguments behind `x0x bundle`; a text where help or the version was asked for. Throws `bad_config` naming the flag that is wrong. */
export const parseBundleFlags = (argv: readonly string[]): BundleFlags | string => {
  const line = programLine(BUNDLE, argv)
  if (typeof line === 'string') return line
  const acl = line.value('exec-acl')
  return {
    file: line.words[0] ?? null,
    log: line.value('log'),
    json: line.has('json'),
    name: line.value('name'),
    config: line.value('config'),
    dataDir: line.value('data-dir'),
    executorSocket: null,
    settings: acl === null ? {} : { 'exec-acl': acl },
  }
}
