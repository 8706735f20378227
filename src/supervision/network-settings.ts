import { type DaemonConfig, dataDirMode } from '../config/config.ts'
import type { NetworkSettings } from '../executor-api/messages.ts'
import { ApiTokenStore } from '../executor/operator-auth.ts'
import { type SeedFile, loadOrCreateSeed } from '../identity/key-file.ts'
import type { MachineKey } from '../identity/machine-key.ts'

export interface NetworkSettingsSources {
  readonly config: DaemonConfig
  readonly machineKey: MachineKey
  readonly tokens: ApiTokenStore
}

/** The API tokens, which are created if missing. */
export const tokensOf = async (config: DaemonConfig): Promise<ApiTokenStore> => {
  const { metrics_token, paths, share_with_group: groupMayRead } = config
  const fileOf = (path: string): SeedFile => ({ path, header: null, groupMayRead })
  const files = { api: fileOf(paths.apiToken), metrics: metrics_token ? fileOf(paths.metricsToken) : null }
  const mode = dataDirMode(config)
  return new ApiTokenStore(files, {
    api_token: await loadOrCreateSeed(files.api, mode),
    metrics_token: files.metrics && (await loadOrCreateSeed(files.metrics, mode)),
  })
}

/** All settings of the network process, which opens no files. */
export const networkSettings = ({ config, machineKey, tokens }: NetworkSettingsSources): NetworkSettings => {
  const { display_name, api_port, mdns, relay, strangers, log_level, otlp } = config
  const [listen, announce, bootstrap, relays] = [[...config.listen], [...config.announce], [...config.bootstrap], [...config.relays]]
  return {
    display_name,
    api_port,
    listen,
    announce,
    bootstrap,
    keep: [...config.keep],
    relay,
    relays,
    dht: config.dht,
    mdns,
    strangers,
    log_level,
    machine_seed: machineKey.seed,
    // Getters, because a restarted network process needs the present tokens.
    get api_token() {
      return tokens.now.api_token
    },
    get metrics_token() {
      return tokens.now.metrics_token
    },
    otlp,
  }
}
