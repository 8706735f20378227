import { type CommandSpec, type OptionSpec, VERSION_OPTION } from './command.ts'

/** Options of all commands of `x0x`. Their help texts are in another file, so that a plain exec does not load them. */
export const PLAIN_OPTIONS: readonly OptionSpec[] = [
  { flags: '--name <name>', text: '' },
  { flags: '--data-dir <dir>', text: '' },
  { flags: '--api <url>', text: '' },
  { flags: '--json', text: '' },
  { flags: '-q, --quiet', text: '' },
  VERSION_OPTION,
]

/** The syntax of a plain `exec`, without help texts and subcommands. */
export const PLAIN_EXEC: CommandSpec = {
  name: 'exec',
  text: '',
  arguments: [{ flags: '[agent]', completes: 'agents' }, { flags: '[argv...]' }],
  carries: true,
  options: [
    { flags: '--timeout <secs>', text: '' },
    { flags: '--session <name>', text: '' },
    { flags: '--stdin-file <file>', text: '' },
    { flags: '--cancel <id>', completes: 'runs', text: '' },
    { flags: '--raw', text: '' },
  ],
  commands: ['sessions', 'watch', 'cancel'].map((name) => ({ name, text: '' })),
}

/** The part of `x0x` that a plain `exec` needs. Any other line uses the table of all commands. */
export const PLAIN_X0X: CommandSpec = { name: 'x0x', text: '', group: true, options: PLAIN_OPTIONS, commands: [PLAIN_EXEC] }

/** Options that send standard input to the command. */
export const SEND_STDIN = ['--stdin-file', '-'] as const

/** Characters of an expression for several hosts, which names of agents rarely have. */
export const MANY_HOSTS = /[[\]@=!,]/
