import { Command, CommanderError, Option } from 'commander'

import { AppError } from '../../base/errors.ts'
import { DEFAULT_REXD_CONFIG } from '../../config/rexd-config.ts'

/** What the command line of `rexd` says. */
export interface RexdFlags {
  readonly mode: 'stdio' | 'http' | 'check' | 'help' | 'version'
  readonly json: boolean
  /** Ends when standard input does. */
  readonly exitOnEof: boolean
  readonly config: string
  /** The text of `--help` and `--version`. */
  readonly text: string
}

const HELP = `
Examples:
  rexd --stdio                              JSON-RPC 2.0, one object per line, on standard input and output
  ssh server-a rexd --stdio                 the same on another machine, by whoever may log in there
  rexd --stdio --config ~/rexd.toml         with a configuration of one's own
  rexd --http --config ~/rexd.toml          HTTP and WebSocket, where server.http_listen says
  rexd --check --config ./config.toml       would this configuration do?
  rexd exec --ssh server-a -- git status    one command through a rexd; see rexd exec --help

It runs what ${DEFAULT_REXD_CONFIG} allows, as the user who starts it. See docs/rexd.md.`

const usage = (text: string): AppError => {
  const what = text
    .replace(/^error: /, '')
    .replaceAll('\n', ' ')
    .replace(/[.\s]+$/, '')
  return new AppError('bad_config', `${what}; how to use it: rexd --help`)
}

/** Parses the arguments behind the program's name. Throws `bad_config` naming the flag that is wrong. */
export const parseRexdFlags = (argv: readonly string[], version: string): RexdFlags => {
  let text = ''
  const command = new Command('rexd')
    .description('Runs commands and looks after files for a program that speaks REXD/1, within configured roots.')
    .addOption(new Option('--stdio', 'serve standard input and output until they end').conflicts(['check', 'http']))
    .addOption(new Option('--http', 'serve HTTP and WebSocket, where the configuration says').conflicts('check'))
    .addOption(
      new Option('--exit-on-eof', 'with --http: end when standard input ends, as it does when its parent dies').conflicts([
        'stdio',
        'check',
      ]),
    )
    .addOption(new Option('--config <file>', 'configuration file').default(DEFAULT_REXD_CONFIG))
    .addOption(new Option('--check', 'check the configuration, serve nothing'))
    .addOption(new Option('--json', 'with --check: one JSON object'))
    .addOption(new Option('--version', 'print the version'))
    .helpOption('-h, --help', 'show this help')
    .addHelpText('after', HELP)
    .allowExcessArguments(false)
    .showSuggestionAfterError(true)
    .exitOverride()
    .configureOutput({ writeOut: (part) => void (text += part), writeErr: () => undefined })
  try {
    command.parse(argv, { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.code !== 'commander.helpDisplayed') throw usage(error.message)
    return { mode: 'help', json: false, exitOnEof: false, config: DEFAULT_REXD_CONFIG, text }
  }
  const options = command.opts<{ stdio?: true; http?: true; exitOnEof?: true; check?: true; json?: true; version?: true; config: string }>()
  const mode = options.version ? 'version' : options.check ? 'check' : options.http ? 'http' : 'stdio'
  if (mode === 'stdio' && options.stdio !== true) throw usage('say how it is to be spoken to: --stdio or --http')
  if (options.json === true && mode !== 'check') throw usage('--json goes with --check')
  return { mode, json: options.json === true, exitOnEof: options.exitOnEof === true, config: options.config, text: `rexd ${version}\n` }
}
