import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../../base/errors.ts'
import type { Environment } from '../../base/runtime.ts'
import { DEFAULT_REXD_CONFIG, configHome } from '../../clients/paths.ts'
import { type RexdConfigReading, readRexdConfig } from '../../config/rexd-config.ts'

/** Configurations that are looked at. */
const MAX_CONFIGS = 32
/** Those that programs of this user read unless they are told otherwise: of `rexd`, and what `x0x mcp --init` has written. */
const usualConfigs = (env: Environment): readonly string[] => {
  const directory = join(configHome(env), 'x0x', 'mcp')
  const made = attempt(() => readdirSync(directory).filter((name) => name.endsWith('.toml'))) ?? []
  return [DEFAULT_REXD_CONFIG, ...made.toSorted().map((name) => join(directory, name))]
    .filter((path) => existsSync(path))
    .slice(0, MAX_CONFIGS)
}

/** The configurations of this host's own doors, as far as they are known here. */
export class EngineConfigs {
  readonly #init: { readonly config: string | null; readonly env: Environment }

  /** `config`: null for those that programs read unless they are told otherwise. */
  constructor(init: { readonly config: string | null; readonly env: Environment }) {
    this.#init = init
  }

  async read(): Promise<readonly RexdConfigReading[]> {
    const { config, env } = this.#init
    return Promise.all((config === null ? usualConfigs(env) : [config]).map(async (path) => readRexdConfig(path, env)))
  }

  /** Where they write down what runs. */
  async journals(): Promise<readonly string[]> {
    const paths = (await this.read()).flatMap((reading) => reading.config?.audit_path ?? [])
    return [...new Set(paths)]
  }
}
