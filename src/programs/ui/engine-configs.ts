import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../../base/errors.ts'
import type { Environment } from '../../base/runtime.ts'
import { DEFAULT_REXD_CONFIG, configHome } from '../../clients/paths.ts'
import { type RexdConfigReading, readRexdConfig } from '../../config/rexd-config.ts'

/** Limit on configurations. */
const MAX_CONFIGS = 32
/** The default configuration of `rexd`, and those written by `x0x mcp --init`. */
const usualConfigs = (env: Environment): readonly string[] => {
  const directory = join(configHome(env), 'x0x', 'mcp')
  const made = attempt(() => readdirSync(directory).filter((name) => name.endsWith('.toml'))) ?? []
  return [DEFAULT_REXD_CONFIG, ...made.toSorted().map((name) => join(directory, name))]
    .filter((path) => existsSync(path))
    .slice(0, MAX_CONFIGS)
}

/** The known configurations of local programs. */
export class EngineConfigs {
  readonly #init: { readonly config: string | null; readonly env: Environment }

  /** `config` is null for the default ones. */
  constructor(init: { readonly config: string | null; readonly env: Environment }) {
    this.#init = init
  }

  async read(): Promise<readonly RexdConfigReading[]> {
    const { config, env } = this.#init
    return Promise.all((config === null ? usualConfigs(env) : [config]).map(async (path) => readRexdConfig(path, env)))
  }

  /** The journals of their runs. */
  async journals(): Promise<readonly string[]> {
    const paths = (await this.read()).flatMap((reading) => reading.config?.audit_path ?? [])
    return [...new Set(paths)]
  }
}
