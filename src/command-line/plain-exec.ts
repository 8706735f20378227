import { VERSION_OPTION, type CommandSpec, type OptionSpec } from './command.ts'

/** Of `x0x`, for all its commands. */
export const X0X_OPTIONS: readonly OptionSpec[] = [
  { flags: '--name <name>', text: 'the daemon with this name (data in ~/.x0x-NAME)' },
  { flags: '--data-dir <dir>', text: 'the daemon with this data directory' },
  { flags: '--api <url>', text: 'an API elsewhere, such as http://127.0.0.1:12700; its token in X0X_API_TOKEN' },
  { flags: '--json', text: 'print one JSON object' },
  { flags: '-q, --quiet', text: 'results and failures alone: no notice, no progress, and nothing where something was only changed' },
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
export const PLAIN_X0X: CommandSpec = { name: 'x0x', text: '', group: true, options: X0X_OPTIONS, commands: [PLAIN_EXEC] }

/** What an expression for many hosts has, and hardly a name. */
export const MANY_HOSTS = /[[\]@=!,]/
