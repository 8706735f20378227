import { VERSION_OPTION, type CommandSpec, type OptionSpec } from './command.ts'

/** Of `x0x`, for all its commands. */
export const X0X_OPTIONS: readonly OptionSpec[] = [
  { flags: '--name <name>', text: 'the daemon with this name (data in ~/.x0x-NAME)' },
  { flags: '--data-dir <dir>', text: 'the daemon with this data directory' },
  { flags: '--api <url>', text: 'an API elsewhere, such as http://127.0.0.1:12700; its token in X0X_API_TOKEN' },
  { flags: '--json', text: 'print one JSON object' },
  VERSION_OPTION,
]

export const EXEC: CommandSpec = {
  name: 'exec',
  summary: 'run a command on an agent',
  text: 'Runs a command on another agent and streams its output. AGENT: a contact, an id, or its first 6 or more characters.',
  usage: 'AGENT [options] -- ARGV...',
  arguments: [{ flags: '[agent]' }, { flags: '[argv...]' }],
  carries: true,
  options: [
    { flags: '--timeout <secs>', text: 'end the command after this time; clamped to the cap there' },
    { flags: '--session <name>', text: 'a name of your own: x0x events --session shows its runs alone' },
    { flags: '--stdin-file <file>', text: 'give the command this stdin; - reads our own to its end' },
    { flags: '--cancel <id>', text: 'cancel this run instead; needs no AGENT' },
    { flags: '--raw', text: 'control characters to the terminal as they come' },
  ],
  examples: [
    'x0x exec bob -- echo 42',
    'x0x exec bob --timeout 30 -- journalctl -u x0xd -n 100',
    'x0x exec bob --stdin-file payload.bin -- sha256sum',
    'tar c . | x0x exec bob --stdin-file - -- sha256sum',
    'x0x exec bob --json -- x0x diagnostics exec',
  ],
  notes: ['Ctrl-C cancels the remote command and waits for its end; a second Ctrl-C does not wait.'],
  commands: [
    { name: 'sessions', text: 'commands that this daemon asked for and that have not ended' },
    { name: 'cancel', text: 'end one of them', arguments: [{ flags: '<id>' }] },
  ],
}

/** As much of `x0x` as a plain `exec` needs. Any other line is for the table of all commands. */
export const PLAIN_X0X: CommandSpec = { name: 'x0x', text: '', group: true, options: X0X_OPTIONS, commands: [EXEC] }
