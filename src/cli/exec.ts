import type { CommandSpec, OptionSpec } from './command.ts'
import { PLAIN_EXEC } from './plain-exec.ts'
import { DETACH_OPTIONS } from './runs.ts'

/** Any of these options makes a line a fan-out, also with one host. */
export const FLEET_OPTIONS: readonly OptionSpec[] = [
  { flags: '--parallel <n>', text: 'so many hosts at once, up to 512 (default: 64)' },
  { flags: '--canary <n>', text: 'the first so many must succeed before the rest begin' },
  { flags: '--max-failures <n>', text: 'begin nothing more after so many failures, such as 3 or 10%' },
  { flags: '--deadline <secs>', text: 'for all hosts together: then nothing more begins, and what runs is ended' },
  { flags: '-g, --group', text: 'equal outputs once, with the hosts that gave them', conflicts: ['diff', 'json'] },
  { flags: '--diff', text: 'the most common output once, and how the others differ from it', conflicts: ['group', 'json'] },
  { flags: '--ledger <file>', text: 'keep what becomes of each host in this file', conflicts: ['retry', 'retry-unknown'] },
  {
    flags: '--retry <file>',
    text: 'ask those hosts of a ledger again whose command certainly did not run; needs no WHO',
    conflicts: ['retry-unknown'],
  },
  { flags: '--retry-unknown <file>', text: 'ask those again whose command may have run: it may run twice there' },
]

/** Help texts of the options of a plain `exec`, which is parsed without them. */
const TEXTS: Readonly<Record<string, string>> = {
  '--timeout <secs>': 'end the command after this time; clamped to the cap there',
  '--session <name>': 'a name of your own: x0x events --session shows its runs alone',
  '--stdin-file <file>': 'give the command this stdin; - reads our own to its end',
  '--cancel <id>': 'cancel this run instead; needs no AGENT',
  '--raw': 'control characters to the terminal as they come',
}

export const EXEC: CommandSpec = {
  ...PLAIN_EXEC,
  summary: 'run a command on an agent, or on many',
  text: 'Runs a command on another agent and streams its output. WHO: a contact, an id, or its first 6 or more characters; for many hosts several of them, node sets of contacts (web[1-20,30]), @group, key=value of labels, and !WHO for whom to leave out.',
  usage: 'WHO... [options] -- ARGV...',
  arguments: [
    { flags: '[agent]', completes: 'hosts' },
    { flags: '[argv...]', completes: 'hosts' },
  ],
  options: [...PLAIN_EXEC.options!.map((option) => ({ ...option, text: TEXTS[option.flags] ?? '' })), ...FLEET_OPTIONS, ...DETACH_OPTIONS],
  examples: [
    'x0x exec bob -- echo 42',
    'x0x exec bob --timeout 30 -- journalctl -u x0xd -n 100',
    'x0x exec bob --stdin-file payload.bin -- sha256sum',
    'tar c . | x0x exec bob --stdin-file - -- sha256sum',
    'x0x exec bob --json -- x0x diagnostics exec',
    "x0x exec 'web[1-20]' @db '!web7' -- uptime",
    "x0x exec 'web[1-20]' --group -- uname -r",
    'x0x exec @web --canary 2 --max-failures 10% --ledger deploy.ledger -- deploy 42',
    'x0x exec --retry deploy.ledger',
    'x0x exec bob --detach --lifetime 2h -- make all',
    "x0x exec 'web[1-20]' --detach -- make all",
  ],
  notes: [
    '',
    'Ctrl-C cancels the remote command and waits for its end; a second Ctrl-C does',
    'not wait. One plain WHO: output and exit status are those of the command; with',
    '--detach 0 when it has started. Anything else is a fan-out, whose exit status is',
    'that of the worst end:',
    '  0    the command ran on every host, and ended with 0',
    '  1    it ran on every host, and failed on some: another code, a signal, or',
    '       output is missing',
    '  3    on some it was denied, not reached, not started, or cancelled',
    '  4    of some it is unknown whether it ran, or how it ended',
    '  130  after Ctrl-C, whatever else happened',
    '  255  the local daemon could not be asked; 2: the line is wrong',
  ],
  commands: [
    {
      name: 'sessions',
      text: 'commands that this daemon asked for and that have not ended',
      options: [{ flags: '--incoming', text: 'those that other agents asked for and that run here; for operators of this host' }],
      examples: ['x0x exec sessions', 'x0x exec sessions --incoming --json'],
    },
    {
      name: 'cancel',
      text: 'end one of them, or all of a fan-out: of ours, else one that runs here for another agent, which is told that an operator ended it',
      arguments: [
        {
          flags: '<id>',
          completes: 'runs',
          text: 'from x0x exec sessions or x0x exec sessions --incoming; its first 4 or more characters are enough',
        },
      ],
      options: [
        { flags: '--incoming', text: 'only one that runs here for another agent' },
        { flags: '--agent <id>', text: 'whose it is, where two agents chose the same id: all 64 characters', goesWith: ['incoming'] },
      ],
      examples: ['x0x exec cancel 01890a5d-ac96-774b-bcce-b302099a8057'],
      notes: ['Exit status: 0 when it was asked to end; 1 where no such command runs, or for want of the proof of an operator.'],
    },
  ],
}
