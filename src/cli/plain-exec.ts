import { type CommandSpec, type OptionSpec, VERSION_OPTION } from './command.ts'

/** Of `x0x`, for all its commands; what is told of them stands apart. */
export const PLAIN_OPTIONS: readonly OptionSpec[] = [
  { flags: '--name <name>', text: '' },
  { flags: '--data-dir <dir>', text: '' },
  { flags: '--api <url>', text: '' },
  { flags: '--json', text: '' },
  { flags: '-q, --quiet', text: '' },
  VERSION_OPTION,
]

/** What a line of `exec` may hold. What is told of it, and its own commands, stand apart: a plain one is read without them. */
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
  commands: ['sessions', 'cancel'].map((name) => ({ name, text: '' })),
}

/** As much of `x0x` as a plain `exec` needs. Any other line is for the table of all commands. */
export const PLAIN_X0X: CommandSpec = { name: 'x0x', text: '', group: true, options: PLAIN_OPTIONS, commands: [PLAIN_EXEC] }

/** What an expression for many hosts has, and hardly a name. */
export const MANY_HOSTS = /[[\]@=!,]/
