import { isAbsolute } from 'node:path'
import type { TomlPath, TomlReader } from '../../base/toml.ts'
import { MAX_SANDBOX_READABLE } from '../../protocol/limits/daemon.ts'
import { MAX_PROCESSES, MIN_MEMORY_BYTES } from '../mesh/confinement.ts'

const SANDBOX_ENGINES = ['bubblewrap', 'podman', 'docker'] as const
type SandboxEngine = (typeof SANDBOX_ENGINES)[number]

/** A name that no engine takes for an option or a path. */
const IMAGE_NAME = /^[A-Za-z0-9][\w.\-/:@]{0,511}$/

/** `[tools.exec.sandbox]` of the configuration of this host's doors. */
export interface SandboxSettings {
  /** With a container engine the sandbox has the files of `image`, and none of this host's programs. */
  readonly engine: SandboxEngine
  /** As the engine names it, with a tag or a digest; null: bubblewrap alone. */
  readonly image: string | null
  /** The host's own network, with all that listens on it. */
  readonly network: boolean
  /** Sockets of the file system (AF_UNIX), which without `network` are refused otherwise. */
  readonly unix_sockets: boolean
  /** Directories that are shown besides the system's own. */
  readonly readable: readonly string[]
  /** Of all its processes together, with what it keeps in memory (`/tmp`); where that cannot be enforced nothing runs. Null: no bound. */
  readonly max_memory_bytes: number | null
  /** At once, threads included; where that cannot be enforced nothing runs. Null: a number of ours, where control groups can be had. */
  readonly max_processes: number | null
}

/** Of a file that says nothing of it. */
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

/** The table at `path`; `undefined`: there is none. Problems are told to the reader. */
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
