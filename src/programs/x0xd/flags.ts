import { Command, CommanderError, Option } from 'commander'

import { AppError } from '../../base/errors.ts'
import type { ConfigFlags } from '../../config/config.ts'

/** What the command line of `x0xd` says; null or empty where it is silent. */
export interface DaemonFlags extends ConfigFlags {
  readonly mode: 'run' | 'check' | 'doctor' | 'help' | 'version'
  readonly json: boolean
  /** The text of `--help` and `--version`. */
  readonly text: string
}

const SETTING_FLAGS = { execAcl: 'exec-acl', apiPort: 'api-port', listen: 'listen', bootstrap: 'bootstrap' } as const

const HELP = `
Examples:
  x0xd                                     the daemon of this user: data in ~/.x0x, API on 127.0.0.1:12700
  x0xd --name lab                          a second one beside it: data in ~/.x0x-lab, any free API port
  x0xd --listen /ip4/0.0.0.0/tcp/5483 --bootstrap /ip4/192.0.2.7/tcp/5483/p2p/12D3Koo…
  x0xd --check --exec-acl ./exec-acl.toml  would this configuration and this ACL start?
  x0xd --doctor                            what is right, what is not, and how to mend it

Settings are taken from flags, then X0X_* variables, then config.toml, then the defaults.
See docs/config.md.`

const collect = (value: string, before: readonly string[] | undefined): readonly string[] => [...(before ?? []), value]

const buildCommand = (): Command =>
  new Command('x0xd')
    .description('The x0x daemon: keeps this machine on the mesh and runs what its ACL allows.')
    .addOption(new Option('--name <name>', 'run beside other daemons of this user, with its own data directory'))
    .addOption(new Option('--config <file>', 'configuration file (default: config.toml in the data directory)'))
    .addOption(new Option('--data-dir <dir>', 'keys, contacts, token and socket (default: ~/.x0x or ~/.x0x-NAME)'))
    .addOption(
      new Option('--exec-acl <file>', 'who may run what here (default: /etc/x0x/exec-acl.toml; with --name: in the data directory)'),
    )
    .addOption(new Option('--api-port <port>', 'port of the API on 127.0.0.1; 0 = any free one'))
    .addOption(new Option('--listen <multiaddr>', 'listen here for peers; may be repeated').argParser(collect))
    .addOption(new Option('--bootstrap <multiaddr>', 'dial this peer at start; may be repeated').argParser(collect))
    .addOption(new Option('--executor-socket <path>', 'start no network half; one that others start connects here'))
    .addOption(new Option('--check', 'check configuration and ACL, start nothing').conflicts('doctor'))
    .addOption(new Option('--doctor', 'examine this installation, start nothing'))
    .addOption(new Option('--json', 'with --check or --doctor: one JSON object'))
    .addOption(new Option('--version', 'print the version'))
    .helpOption('-h, --help', 'show this help')
    .addHelpText('after', HELP)
    .allowExcessArguments(false)
    .showSuggestionAfterError(true)

const usage = (text: string): AppError => {
  const what = text
    .replace(/^error: /, '')
    .replaceAll('\n', ' ')
    .replace(/[.\s]+$/, '')
  return new AppError('bad_config', `${what}; how to use it: x0xd --help`)
}

/** Parses the arguments behind the program's name. Throws `bad_config` naming the flag that is wrong. */
export const parseDaemonFlags = (argv: readonly string[], version: string): DaemonFlags => {
  let text = ''
  const command = buildCommand()
    .exitOverride()
    .configureOutput({ writeOut: (part) => void (text += part), writeErr: () => undefined })
  try {
    command.parse(argv, { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.code !== 'commander.helpDisplayed') throw usage(error.message)
    return { mode: 'help', json: false, name: null, config: null, dataDir: null, executorSocket: null, settings: {}, text }
  }
  const options = command.opts<Record<string, string | boolean | readonly string[] | undefined>>()
  const settings = Object.entries(SETTING_FLAGS).flatMap(([option, flag]) => {
    const value = options[option]
    return value === undefined || typeof value === 'boolean' ? [] : [[flag, value] as const]
  })
  const one = (key: string): string | null => (typeof options[key] === 'string' ? options[key] : null)
  const mode = options['version'] ? 'version' : options['check'] ? 'check' : options['doctor'] ? 'doctor' : 'run'
  const json = options['json'] === true
  if (json && mode === 'run') throw usage('--json goes with --check or --doctor')
  return {
    mode,
    json,
    name: one('name'),
    config: one('config'),
    dataDir: one('dataDir'),
    executorSocket: one('executorSocket'),
    settings: Object.fromEntries(settings),
    text: `x0xd ${version}\n`,
  }
}
