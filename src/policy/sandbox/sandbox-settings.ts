import { isAbsolute } from 'node:path'
import type { TomlPath, TomlReader } from '../../base/toml.ts'
import { MAX_SANDBOX_READABLE } from '../../protocol/limits/daemon.ts'
import { MAX_PROCESSES, MIN_MEMORY_BYTES } from '../mesh/confinement.ts'

const SANDBOX_ENGINES = ['bubblewrap', 'podman', 'docker'] as const
type SandboxEngine = (typeof SANDBOX_ENGINES)[number]

/** Names that no engine mistakes for an option or a path. */
const IMAGE_NAME = /^[A-Za-z0-9][\w.\-/:@]{0,511}$/

/** `[tools.exec.sandbox]` of a configuration. */
export interface SandboxSettings {
  /** Container engines show the files of `image` instead of this host's programs. */
  readonly engine: SandboxEngine
  /** Name for the engine, with a tag or digest, or null for bubblewrap. */
  readonly image: string | null
  /** True to share the host's network and all that listens on it. */
  readonly network: boolean
  /** True to allow AF_UNIX sockets, which are otherwise refused without `network`. */
  readonly unix_sockets: boolean
  /** Directories shown in addition to the system's. */
  readonly readable: readonly string[]
  /** Limit for all processes together, including files in `/tmp`. If it cannot be enforced, nothing runs. Null for no limit. */
  readonly max_memory_bytes: number | null
  /** Limit of processes and threads. If it cannot be enforced, nothing runs. Null for a default, if control groups are available. */
  readonly max_processes: number | null
}

/** Settings of a file that has none. */
export const DEFAULT_SANDBOX: SandboxSettings = Object.freeze({
  engine: 'bubblewrap',
  image: null,
  network: false,
  unix_sockets: false,
  readable: Object.freeze([]),
  max_memory_bytes: null,
  max_processes: null,
})

const KEYS = Object.keys(DEFAULT_SANDBOX)

/** Reads the table at `path`; `undefined` if the file has none. The reader collects problems. */
export const readSandboxSettings = (toml: TomlReader, path: TomlPath, value: unknown): SandboxSettings => {
  const table = value === undefined ? null : toml.table(path, value, KEYS)
  if (table === null) return DEFAULT_SANDBOX
  const at = (key: keyof SandboxSettings): TomlPath => [...path, key]
  const named = table['engine'] ?? DEFAULT_SANDBOX.engine
  const engine = SANDBOX_ENGINES.find((one) => one === named)
  if (engine === undefined) toml.problem(at('engine'), `must be one of ${SANDBOX_ENGINES.join(', ')}`)
  const image = toml.text(at('image'), table['image'])
  if (image !== null && !IMAGE_NAME.test(image))
    toml.problem(at('image'), 'must be the name of an image, such as "docker.io/library/debian:12"')
  if (engine !== undefined && (engine === 'bubblewrap') !== (image === null))
    toml.problem(at('image'), engine === 'bubblewrap' ? 'is for engine = "podman" or "docker"' : `is required with engine = "${engine}"`)
  const readable = toml.strings(at('readable'), table['readable']) ?? []
  const loose = readable.find((one) => !isAbsolute(one))
  if (loose !== undefined) toml.problem(at('readable'), `${JSON.stringify(loose)} must be an absolute path`)
  if (readable.length > MAX_SANDBOX_READABLE) toml.problem(at('readable'), `names more than ${MAX_SANDBOX_READABLE} directories`)
  return {
    engine: engine ?? DEFAULT_SANDBOX.engine,
    image,
    network: toml.boolean(at('network'), table['network']) ?? DEFAULT_SANDBOX.network,
    unix_sockets: toml.boolean(at('unix_sockets'), table['unix_sockets']) ?? DEFAULT_SANDBOX.unix_sockets,
    readable,
    max_memory_bytes: toml.wholeNumber(at('max_memory_bytes'), table['max_memory_bytes'], MIN_MEMORY_BYTES, Number.MAX_SAFE_INTEGER),
    max_processes: toml.wholeNumber(at('max_processes'), table['max_processes'], 1, MAX_PROCESSES),
  }
}
