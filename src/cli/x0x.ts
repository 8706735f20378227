import { APPROVALS, EXEC_MODE } from './approvals.ts'
import type { CommandSpec } from './command.ts'
import { SHELLS } from './completion.ts'
import { EXEC } from './exec.ts'
import { CP, LS } from './files.ts'
import { PLAIN_OPTIONS } from './plain-exec.ts'
import { ATTACH, RUNS } from './runs.ts'
import { TRANSCRIPTS } from './transcripts.ts'
import { ACL, AUDIT, CONTACTS, ENROL } from './x0x-operator.ts'

export const DOCTOR: CommandSpec = {
  name: 'doctor',
  text: 'Check the relation with an agent, from both ends',
  usage: 'AGENT [options] [-- COMMAND [ARGS...]]',
  arguments: [{ flags: '<agent>', completes: 'agents', text: 'Contact name, or at least 6 characters of an ID' }, { flags: '[argv...]' }],
  carries: true,
  examples: ['x0x doctor bob', 'x0x doctor bob -- systemctl --no-pager status x0xd', 'x0x doctor bob --json'],
  exits: [
    ['0', 'No check failed'],
    ['1', 'A check failed'],
    ['255', 'The agent is unknown, or x0xd does not answer'],
  ],
  notes: [
    'With a command after "--", x0x also asks whether the target allows it. The command does not run. Both machines log the question.',
    'To check this installation, use x0xd --doctor.',
  ],
}

export const PING: CommandSpec = {
  name: 'ping',
  text: 'Measure latency, route, versions and clock difference to an agent',
  arguments: [{ flags: '<agent>', completes: 'agents', text: 'Contact name, or at least 6 characters of an ID' }],
  options: [
    { flags: '-c, --count <count>', text: 'Send this many, at most 10000', default: '4' },
    { flags: '-i, --interval <secs>', text: 'Wait this long between two, at least 0.1', default: '1' },
  ],
  examples: ['x0x ping laptop', 'x0x ping laptop -c 1', 'x0x ping laptop -c 100 -i 0.2 --json'],
  exits: [
    ['0', 'At least one reply came'],
    ['255', 'No reply came'],
  ],
  notes: ['Only agents that accept this one reply.'],
}

export const TRUST: CommandSpec = {
  name: 'trust',
  text: 'Explain trust decisions',
  group: true,
  examples: ['x0x trust evaluate laptop 6e1f…'],
  commands: [
    {
      name: 'evaluate',
      text: 'Show how this daemon judges an agent on a machine',
      arguments: [
        { flags: '<agent>', completes: 'agents', text: 'Contact name, or at least 6 characters of an ID' },
        {
          flags: '<machine>',
          completes: 'machines',
          text: 'Machine ID, its first 6 characters, or a name',
        },
      ],
      examples: ['x0x trust evaluate laptop 6e1f…', 'x0x trust evaluate laptop 6e1f… --json'],
      exits: [
        ['0', 'Accepted; the ACL decides about commands'],
        ['3', 'Accepted for messages only'],
        ['4', 'Unknown: may do nothing'],
        ['5', 'Rejected: its links are closed'],
        ['255', 'No such agent'],
      ],
      notes: ['This asks only the local daemon.'],
    },
  ],
}

export const TOKEN_NAMES = ['api-token', 'metrics-token', 'operator-key'] as const

export const KEYS: CommandSpec = {
  name: 'keys',
  text: 'Replace keys and tokens of this daemon',
  group: true,
  examples: ['x0x keys rotate --yes', 'x0x keys rotate-token', 'x0x keys rotate-token operator-key'],
  commands: [
    {
      name: 'rotate',
      text: 'Replace the key of this agent',
      options: [{ flags: '--yes', text: 'Confirm: other operators must update their ACLs' }],
    },
    {
      name: 'rotate-token',
      text: 'Replace a secret of local clients, without a restart',
      arguments: [{ flags: '[which]', completes: TOKEN_NAMES, text: 'Secret to replace (default: api-token)' }],
    },
  ],
  notes: [
    'Stop x0xd before x0x keys rotate. The old key signs a notice about the new one for contacts.',
    'After x0x keys rotate-token, the old secret is invalid. See docs/keys.md.',
  ],
}

const INIT: CommandSpec = {
  name: 'init',
  text: 'Create the data directory, keys, configuration and an empty ACL',
  options: [
    { flags: '--as <name>', text: 'Name this agent (default: host name)' },
    { flags: '--reachable', text: 'Let other machines connect (default)', conflicts: ['only-asks'] },
    { flags: '--only-asks', text: 'Connect to others, but do not listen' },
    { flags: '--user', text: 'Set up a daemon of this user (default)', conflicts: ['service'] },
    { flags: '--service', text: 'Set up a system service' },
    { flags: '--dry-run', text: 'Only print what would be created' },
  ],
  examples: ['x0x init', 'x0x init --as laptop --only-asks', 'x0x init --dry-run --json'],
  notes: ['Existing files stay unchanged. At a terminal, without a config.toml, it asks for missing options.'],
}

const INVITE: CommandSpec = {
  name: 'invite',
  otherWords: ['pair', 'add'],
  text: 'Pair with another machine',
  usage: '[options] NAME [-- COMMAND [ARGS...]]',
  arguments: [{ flags: '<name>', text: 'Your name for the other agent' }, { flags: '[argv...]' }],
  carries: true,
  examples: ['x0x invite alice', 'x0x invite alice -- df -h >> ~/.x0x/exec-acl.toml'],
  notes: [
    'Both machines then know, trust and pin each other. You pass on a line in each direction, and compare a code. Nothing changes before the codes match. An invitation is valid for one hour and one use.',
    'With a command after "--", x0x prints its ACL entry on standard output. Dialogs use standard error.',
  ],
}

const JOIN: CommandSpec = {
  name: 'join',
  text: 'Accept an invitation from x0x invite',
  arguments: [{ flags: '<line...>', text: 'Invitation (x0x://invite/…); line breaks are ignored' }],
  options: [{ flags: '--as <name>', text: 'Your name for the other agent (default: its own)' }],
  examples: ['x0x join x0x://invite/… --as bob'],
}

/** The commands that two machines need before the first run. */
export const FIRST_COMMANDS: readonly CommandSpec[] = [INIT, INVITE, JOIN]

const id: CommandSpec = {
  name: 'id',
  otherWords: ['whoami'],
  text: 'Show the agent, machine and name of this daemon',
  commands: [
    {
      name: 'revoke',
      text: 'Revoke this agent for ever',
      options: [
        { flags: '--machine <id>', text: 'Revoke it only on this machine' },
        { flags: '--yes', text: 'Confirm that this cannot be undone' },
      ],
    },
  ],
}

const direct: CommandSpec = {
  name: 'direct',
  text: 'Send and receive messages between agents',
  group: true,
  examples: ['x0x direct send laptop "the build is done"', 'x0x direct listen'],
  commands: [
    {
      name: 'send',
      text: 'Send a message and wait for its delivery',
      arguments: [
        { flags: '<agent>', completes: 'agents' },
        { flags: '[text]', text: 'Message; - or none: read standard input' },
      ],
      options: [{ flags: '--content-type <type>', text: 'Set the MIME type of the message', default: 'text/plain' }],
    },
    { name: 'listen', text: 'Print messages as they arrive' },
  ],
}

const diagnostics: CommandSpec = {
  name: 'diagnostics',
  text: 'Show counters of the daemon',
  group: true,
  examples: ['x0x diagnostics exec'],
  commands: [
    { name: 'exec', text: 'Count runs, denials and runs stopped at limits' },
    { name: 'dm', text: 'Count links and messages' },
    { name: 'mesh', text: 'Count addresses, connections and discovery' },
  ],
}

const replay: CommandSpec = {
  name: 'replay',
  text: 'Compute recorded results again and compare them',
  arguments: [{ flags: '<file>', text: 'Record written by x0x mcp --record' }],
  examples: ['x0x mcp --whoami reviewer --record run.jsonl', 'x0x replay run.jsonl'],
  exits: [
    ['0', 'All results are equal'],
    ['1', 'A result differs, or the record is incomplete'],
    ['2', 'The file is not a record'],
  ],
}

const version: CommandSpec = {
  name: 'version',
  text: 'Show versions of x0x, its runtime and the daemon',
  examples: ['x0x version', 'x0x version --json'],
}

const completion: CommandSpec = {
  name: 'completion',
  text: 'Print a completion script for bash, zsh or fish',
  arguments: [{ flags: '<shell>', completes: SHELLS, text: 'Shell (bash, zsh or fish)' }, { flags: '[line...]' }],
  usage: 'SHELL',
  carries: true,
  examples: [
    'source <(x0x completion bash)                            for ~/.bashrc',
    'source <(x0x completion zsh)                             for ~/.zshrc, after compinit',
    'x0x completion fish > ~/.config/fish/completions/x0x.fish',
  ],
  notes: ['The scripts complete x0x, x0xd, rexd and rexec. They call x0x completion words -- LINE.'],
}

const man: CommandSpec = {
  name: 'man',
  text: 'Print a manual page',
  arguments: [{ flags: '[program]', completes: ['x0x', 'x0xd', 'rexd', 'rexec'], text: 'Program (default: x0x)' }],
  options: [{ flags: '--markdown', text: 'Print all pages as Markdown' }],
  examples: ['x0x man x0xd | man -l -', 'x0x man --markdown > x0x.md'],
}

const events: CommandSpec = {
  name: 'events',
  text: 'Print events of runs that this daemon requested',
  options: [
    { flags: '--follow', text: 'Continue to print new events' },
    { flags: '--since <n>', text: 'Print only events after this number' },
    { flags: '--session <name>', text: 'Print only events of runs with this label' },
  ],
  examples: ['x0x events', 'x0x events --follow', 'x0x events --since 42 --json'],
}

/** Help texts of the options of a plain exec, which is parsed without them. */
const OPTION_TEXTS: Readonly<Record<string, string>> = {
  '--name <name>': 'Use the daemon with this name (~/.x0x-NAME)',
  '--data-dir <dir>': 'Use the daemon with this data directory',
  '--api <url>': 'Use the API at this URL, with X0X_API_TOKEN',
  '--json': 'Print JSON',
  '-q, --quiet': 'Print only results and errors',
}

const PROGRAMS = ['mcp', 'ui', 'desk', 'bundle', 'rexd', 'console']

const X0X_WHOLE: CommandSpec = {
  name: 'x0x',
  text: 'Run strictly allowlisted commands on other machines',
  group: true,
  programs: PROGRAMS,
  options: PLAIN_OPTIONS.map((option) => (option.text === '' ? { ...option, text: OPTION_TEXTS[option.flags] ?? '' } : option)),
  commands: [
    EXEC,
    RUNS,
    ATTACH,
    CP,
    LS,
    id,
    KEYS,
    { name: 'card', text: "Print this agent's card, for x0x contacts import" },
    ...FIRST_COMMANDS,
    CONTACTS,
    ENROL,
    TRUST,
    PING,
    DOCTOR,
    {
      name: 'peers',
      otherWords: ['status', 'nodes', 'hosts', 'ps'],
      text: 'List connected and discovered agents',
      options: [{ flags: '--graph', text: 'Draw the peers with their latency' }],
    },
    direct,
    events,
    diagnostics,
    { name: 'routes', text: 'List the routes of the API' },
    ACL,
    AUDIT,
    APPROVALS,
    EXEC_MODE,
    TRANSCRIPTS,
    replay,
    completion,
    man,
    version,
  ],
  examples: [
    'x0x invite bob                  pair with another machine',
    'x0x exec bob -- uptime          run a command on bob',
    "x0x exec 'web[1-20]' -g -- df   run it on many, group equal outputs",
    'x0x cp report.pdf bob:/srv/     copy a file to bob',
    'x0x acl mine bob                list what you may run on bob',
    'x0x doctor bob                  find out why bob does not answer',
    'x0x audit timeline              show what ran on this machine',
    'x0x approvals watch             decide about approval requests',
    'x0x ui                          open the page in your browser',
    'x0x mcp --help                  give tools to an AI agent',
    'x0x desk                        run the approval service without x0xd',
    'x0x console --help              watch commands of AI agents',
    'x0x rexd --help                 serve commands and files to programs',
    'x0x bundle                      write a support file without secrets',
  ],
  notes: [
    'Every command takes --json. For exit statuses, see x0x exec --help: a command that cannot reach an agent or x0xd ends with 255, one with a wrong command line with 2.',
  ],
}

/** The table for the single-file build, which does not have the other programs. */
export const inSingleFile = (command: CommandSpec): CommandSpec => {
  const { programs = [], examples = [] } = command
  const isHere = (example: string): boolean => !programs.some((program) => example.startsWith(`${command.name} ${program} `))
  return { ...command, examples: examples.filter(isHere), elsewhere: true }
}

/** The single-file build has another runtime inside. */
export const X0X: CommandSpec = process.versions['bun'] === undefined ? X0X_WHOLE : inSingleFile(X0X_WHOLE)
