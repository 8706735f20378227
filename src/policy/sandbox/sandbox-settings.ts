import { isAbsolute } from 'node:path'

import type { TomlPath, TomlReader } from '../../base/toml-reader.ts'
import { DEFAULT_SANDBOX_PROCESSES, MAX_SANDBOX_READABLE } from '../../protocol/sandbox-limits.ts'
import { MAX_PROCESSES } from '../mesh/confinement.ts'

/** `[tools.exec.sandbox]` of the configuration of this host's doors. */
export interface SandboxSettings {
  /** There is one so far; a container engine would be another. */
  readonly engine: 'bubblewrap'
  /** The host's own network, with all that listens on it. */
  readonly network: boolean
  /** The working directory may be the home, whose secrets are covered then. */
  readonly allow_home: boolean
  /** Directories that are shown besides the system's own. */
  readonly readable: readonly string[]
  /** At once, threads included; enforced where control groups can be had. */
  readonly max_processes: number
}

/** Of a file that says nothing of it. */
export const DEFAULT_SANDBOX: SandboxSettings = Object.freeze({
  engine: 'bubblewrap',
  network: false,
  allow_home: false,
  readable: Object.freeze([]),
  max_processes: DEFAULT_SANDBOX_PROCESSES,
})

const KEYS = Object.keys(DEFAULT_SANDBOX)

/** The table at `path`; `undefined`: there is none. Problems are told to the reader. */
export const readSandboxSettings = (toml: TomlReader, path: TomlPath, value: unknown): SandboxSettings => {
  const table = value === undefined ? null : toml.table(path, value, KEYS)
  if (table === null) return DEFAULT_SANDBOX
  const at = (key: keyof SandboxSettings): TomlPath => [...path, key]
  const engine = table['engine'] ?? DEFAULT_SANDBOX.engine
  if (engine !== DEFAULT_SANDBOX.engine) toml.problem(at('engine'), `must be "bubblewrap"; containers are not known to this version`)
  const readable = toml.strings(at('readable'), table['readable']) ?? []
  const loose = readable.find((one) => !isAbsolute(one))
  if (loose !== undefined) toml.problem(at('readable'), `${JSON.stringify(loose)} must be an absolute path`)
  if (readable.length > MAX_SANDBOX_READABLE) toml.problem(at('readable'), `names more than ${MAX_SANDBOX_READABLE} directories`)
  return {
    engine: DEFAULT_SANDBOX.engine,
    network: toml.boolean(at('network'), table['network']) ?? DEFAULT_SANDBOX.network,
    allow_home: toml.boolean(at('allow_home'), table['allow_home']) ?? DEFAULT_SANDBOX.allow_home,
    readable,
    max_processes: toml.wholeNumber(at('max_processes'), table['max_processes'], 1, MAX_PROCESSES) ?? DEFAULT_SANDBOX.max_processes,
  }
}
