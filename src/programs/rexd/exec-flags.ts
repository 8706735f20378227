import { Command, CommanderError, Option } from 'commander'

import { AppError } from '../../base/errors.ts'
import { DEFAULT_REXD_CONFIG } from '../../config/rexd-config.ts'

/** One command to be run through a rexd, and the way there. */
export interface RexdExecFlags {
  /** Null: a rexd of this host is started for it, unless there is a `url`. */
  readonly ssh: string | null
  readonly url: string | null
  readonly tokenFile: string | null
  readonly config: string
  readonly target: string | null
  readonly cwd: string | null
  /** Milliseconds; null: the server's. */
  readonly timeoutMs: number | null
  readonly stdin: boolean
  readonly tty: boolean
  readonly argv: readonly string[]
}

const HELP = `
Examples:
  rexd exec --ssh server-a -- git status --short           through a rexd that ssh starts there
  rexd exec --ssh server-a --tty -- top                    on a terminal, where security.allow_pty grants it
  rexd exec --url ws://127.0.0.1:7680 --token-file t -- make test
  rexd exec --config ~/rexd.toml --target saorsa-7 -- uptime
  tar c . | rexd exec --ssh server-a --stdin --cwd /srv/app -- tar x

Exit status: that of the command, 128+n when signal n ended it, 141 when nobody reads us any more, 255 when it could
not be run or its end is not known.`

const usage = (text: string): AppError => new AppError('bad_config', `${text}; how to use it: rexd exec --help`)

const seconds = (text: string | undefined): number | null => {
  if (text === undefined) return null
  const ms = /^[0-9]{1,9}(?:\.[0-9]{1,3})?$/.test(text) ? Math.round(Number(text) * 1000) : 0
  if (ms < 1) throw usage(`--timeout: ${JSON.stringify(text)} is not a number of seconds above 0, such as 30 or 2.5`)
  return ms
}

interface Options {
  ssh?: string
  url?: string
  tokenFile?: string
  config: string
  target?: string
  cwd?: string
  timeout?: string
  stdin?: true
  tty?: true
}

/** What is behind `rexd exec`; a text where help was asked for. Throws `bad_config` naming what is wrong. */
export const parseRexdExecFlags = (argv: readonly string[]): RexdExecFlags | string => {
  let text = ''
  const command = new Command('rexd exec')
    .description('Runs one command through a rexd: of this host, behind ssh, or one that listens.')
    .argument('<argv...>', 'the program and its arguments, behind --')
    .addOption(new Option('--ssh <host>', 'through `ssh -T HOST rexd --stdio`').conflicts(['url', 'config']))
    .addOption(new Option('--url <url>', 'where rexd --http listens: ws://host:port, wss://…, unix:/path').conflicts('config'))
    .addOption(new Option('--token-file <file>', 'with --url: a copy of its token_file'))
    .addOption(new Option('--config <file>', 'of the rexd that is started here').default(DEFAULT_REXD_CONFIG))
    .addOption(new Option('--target <agent>', 'on an agent of the mesh, where security.allow_targets has it'))
    .addOption(new Option('--cwd <dir>', 'where it runs'))
    .addOption(
      new Option(
        '--timeout <seconds>',
        "when it is ended; the server's limits.default_timeout_ms unless told, with --tty its hard_timeout_ms",
      ),
    )
    .addOption(new Option('--stdin', 'give it our standard input').conflicts('tty'))
    .addOption(new Option('--tty', 'on a terminal of its own').conflicts('target'))
    .helpOption('-h, --help', 'show this help')
    .addHelpText('after', HELP)
    .exitOverride()
    .configureOutput({ writeOut: (part) => void (text += part), writeErr: () => undefined })
  try {
    command.parse(argv, { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    if (error.code === 'commander.helpDisplayed') return text
    const next = error.code === 'commander.unknownOption' ? '; the command stands behind two dashes, such as: -- ls -l' : ''
    throw usage(`${error.message.replace(/^error: /, '').replaceAll('\n', ' ')}${next}`)
  }
  const { ssh, url, tokenFile, config, target, cwd, timeout, stdin, tty } = command.opts<Options>()
  if ((url === undefined) !== (tokenFile === undefined)) throw usage('--url and --token-file belong together')
  return {
    ssh: ssh ?? null,
    url: url ?? null,
    tokenFile: tokenFile ?? null,
    config,
    target: target ?? null,
    cwd: cwd ?? null,
    timeoutMs: seconds(timeout),
    stdin: stdin === true,
    tty: tty === true,
    argv: command.args,
  }
}
