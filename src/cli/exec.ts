import type { CommandSpec, OptionSpec } from './command.ts'
import { PLAIN_EXEC } from './plain-exec.ts'
import { DETACH_OPTIONS } from './runs.ts'

/** Options of a run on a terminal, which a plain `exec` does not have. */
const TERMINAL_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '-t, --terminal',
    text: 'Run on a terminal; -tt also without a local one',
    conflicts: 'json stdin-file cancel raw detach parallel canary max-failures deadline group diff ledger retry retry-unknown'.split(' '),
  },
  { flags: '--raw-terminal', text: 'With -t, pass titles, clipboard and queries too', goesWith: ['terminal'] },
]

/** Any of these options makes a line a fan-out, also with one host. */
export const FLEET_OPTIONS: readonly OptionSpec[] = [
  { flags: '--parallel <n>', text: 'Run on n hosts at once, at most 512 (default: 64)' },
  { flags: '--canary <n>', text: 'Run on n hosts first; continue only if all succeed' },
  { flags: '--max-failures <n>', text: 'Start no more hosts after n failures (3 or 10%)' },
  { flags: '--deadline <secs>', text: 'Stop the whole fan-out after this many seconds' },
  { flags: '-g, --group', text: 'Group hosts with equal output', conflicts: ['diff', 'json'] },
  { flags: '--diff', text: 'Show one output, and the differences of the others', conflicts: ['group', 'json'] },
  { flags: '--ledger <file>', text: 'Record the result of each host in this file', conflicts: ['retry', 'retry-unknown'] },
  {
    flags: '--retry <file>',
    text: 'Run again on hosts where it did not run',
    conflicts: ['retry-unknown'],
  },
  { flags: '--retry-unknown <file>', text: 'Run again on hosts where it may have run' },
]

/** Help texts of the options of a plain `exec`, which is parsed without them. */
const TEXTS: Readonly<Record<string, string>> = {
  '--timeout <secs>': 'Stop the command after this many seconds',
  '--session <name>': 'Label the run; x0x events --session shows it',
  '--stdin-file <file>': 'Send this file as stdin; - sends standard input',
  '--cancel <id>': 'Cancel this run instead of starting one',
  '--raw': 'Write control characters to the terminal unchanged',
}

export const EXEC: CommandSpec = {
  ...PLAIN_EXEC,
  otherWords: ['run', 'ssh'],
  text: 'Run a command on one host or many',
  usage: 'HOST... [options] -- COMMAND [ARGS...]',
  arguments: [
    { flags: '[agent]', completes: 'hosts' },
    { flags: '[argv...]', completes: 'hosts' },
  ],
  options: [
    ...PLAIN_EXEC.options!.map((option) => ({ ...option, text: TEXTS[option.flags] ?? '' })),
    ...TERMINAL_OPTIONS,
    ...FLEET_OPTIONS,
    ...DETACH_OPTIONS,
  ],
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
    'x0x exec -t bob -- htop',
    'x0x exec bob --detach --lifetime 2h -- make all',
    "x0x exec 'web[1-20]' --detach -- make all",
  ],
  exits: [
    ['0-254', 'One host: exit status of the command; 128+n after signal n'],
    ['255', 'One host: denied, not reached, or stopped at a limit; any: x0xd does not answer, or the input was not sent'],
    ['0', 'Many hosts, or --detach: the command succeeded, or started, on each'],
    ['1', 'Many hosts: it ran on each host, and failed on some'],
    ['3', 'Many hosts: some denied it, were not reached, or were cancelled'],
    ['4', 'Many hosts: for some, it is not known whether it ran'],
    ['130', 'Many hosts: stopped by Ctrl-C'],
    ['2', 'The command line is wrong, or there is input that would not be sent'],
  ],
  notes: [
    'HOST is a contact, or at least 6 characters of an agent ID. For a fan-out, name several of them, contacts with numbers (web[1-20,30]), groups (@db) or labels (role=web). !HOST excludes a host.',
    'The ACL of the target can set a lower limit than --timeout.',
    'Without --stdin-file, it leaves standard input alone, as a loop over a file needs. If there is data that only x0x could read, nothing runs: add --stdin-file -, or < /dev/null.',
    'Ctrl-C cancels the run and waits for its end. Press it again to stop waiting.',
    'With -t, Ctrl-C goes to the command. After Enter, ~. ends the connection and ~? shows these keys. The ACL of the target needs terminal = true.',
  ],
  commands: [
    {
      name: 'sessions',
      text: 'List runs that have not ended',
      options: [{ flags: '--incoming', text: 'List runs of other agents on this machine instead' }],
      examples: ['x0x exec sessions', 'x0x exec sessions --incoming --json'],
    },
    {
      name: 'watch',
      text: 'Look on at a command that another agent runs',
      arguments: [{ flags: '<id>', text: 'Run ID, or at least its first 4 characters' }],
      examples: ['x0x exec sessions --incoming', 'x0x exec watch 01890a5d'],
      notes: [
        'The ACL must have watch = true for a command on a terminal. You must be able to read operator.key. The requester is notified.',
      ],
    },
    {
      name: 'cancel',
      text: 'Stop a run, or all runs of a fan-out',
      arguments: [
        {
          flags: '<id>',
          completes: 'runs',
          text: 'Run ID, or at least its first 4 characters',
        },
      ],
      options: [
        { flags: '--incoming', text: 'Stop only a run of another agent' },
        { flags: '--agent <id>', text: 'Agent that requested it (64 characters)', goesWith: ['incoming'] },
      ],
      examples: ['x0x exec cancel 01890a5d-ac96-774b-bcce-b302099a8057'],
      exits: [
        ['0', 'The run was asked to stop'],
        ['1', 'No such run, or you cannot read operator.key'],
      ],
      notes: ['To stop a run of another agent on this machine, you must be able to read operator.key. That agent is notified.'],
    },
  ],
}
