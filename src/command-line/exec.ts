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

export const EXEC: CommandSpec = {
  name: 'exec',
  summary: 'run a command on an agent',
  text: 'Runs a command on another agent and streams its output. AGENT: a contact, an id, or its first 6 or more characters.',
  usage: 'AGENT [options] -- ARGV...',
  arguments: [{ flags: '[agent]', completes: 'agents' }, { flags: '[argv...]' }],
  carries: true,
  options: [
    { flags: '--timeout <secs>', text: 'end the command after this time; clamped to the cap there' },
    { flags: '--session <name>', text: 'a name of your own: x0x events --session shows its runs alone' },
    { flags: '--stdin-file <file>', text: 'give the command this stdin; - reads our own to its end' },
    { flags: '--cancel <id>', completes: 'runs', text: 'cancel this run instead; needs no AGENT' },
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
    {
      name: 'sessions',
      text: 'commands that this daemon asked for and that have not ended',
      options: [{ flags: '--incoming', text: 'those that other agents asked for and that run here; for operators of this host' }],
      examples: ['x0x exec sessions', 'x0x exec sessions --incoming --json'],
    },
    {
      name: 'cancel',
      text: 'end one of them: one of ours, else one that runs here for another agent, which is told that an operator ended it',
      arguments: [{ flags: '<id>', completes: 'runs', text: 'from x0x exec sessions or x0x exec sessions --incoming' }],
      options: [
        { flags: '--incoming', text: 'only one that runs here for another agent' },
        { flags: '--agent <id>', text: 'whose it is, where two agents chose the same id: all 64 characters', goesWith: ['incoming'] },
      ],
      examples: ['x0x exec cancel 01890a5d-ac96-774b-bcce-b302099a8057'],
      notes: ['Exit status: 0 when it was asked to end; 1 where no such command runs, or for want of the proof of an operator.'],
    },
  ],
}

/** As much of `x0x` as a plain `exec` needs. Any other line is for the table of all commands. */
export const PLAIN_X0X: CommandSpec = { name: 'x0x', text: '', group: true, options: X0X_OPTIONS, commands: [EXEC] }
