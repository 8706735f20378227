import type { CommandLine } from '../../cli/parse.ts'
import type { ConfigFlags } from '../../config/config.ts'

export interface BundleFlags extends ConfigFlags {
  readonly file: string | null
  /** A file; `-` for standard input. */
  readonly log: string | null
  readonly json: boolean
}

export const bundleFlags = (line: CommandLine): BundleFlags => {
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
