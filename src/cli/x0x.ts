import { APPROVALS, EXEC_MODE } from './approvals.ts'
import type { CommandSpec, OptionSpec } from './command.ts'
import { SHELLS } from './completion.ts'
import { EXEC } from './exec.ts'
import { PLAIN_OPTIONS } from './plain-exec.ts'
import { ATTACH, RUNS } from './runs.ts'
import { ACL, AUDIT, CONTACTS } from './x0x-operator.ts'

export const DOCTOR: CommandSpec = {
  name: 'doctor',
  text: 'both ends of one relation: addresses, link, trust, pins, clocks, versions, and whether a command would be allowed there',
  usage: 'AGENT [options] [-- ARGV...]',
  arguments: [
    { flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' },
    { flags: '[argv...]' },
  ],
  carries: true,
  examples: ['x0x doctor bob', 'x0x doctor bob -- systemctl --no-pager status x0xd', 'x0x doctor bob --json'],
  notes: [
    'Each line says what it means, and what mends it. Nothing runs there; the question for its rules is journalled on both',
    'sides. Exit status 0; 1 where something fails. This installation alone: x0xd --doctor.',
  ],
}

export const PING: CommandSpec = {
  name: 'ping',
  text: 'is an agent there, how far away, by which way, of which version',
  arguments: [{ flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' }],
  options: [
    { flags: '-c, --count <count>', text: 'how many times, at most 10000', default: '4' },
    { flags: '-i, --interval <secs>', text: 'time between two of them, at least 0.1', default: '1' },
  ],
  examples: ['x0x ping laptop', 'x0x ping laptop -c 1', 'x0x ping laptop -c 100 -i 0.2 --json'],
  notes: [
    'It goes over the sealed link, and is answered to agents that are accepted there. Exit status 0 when at least one was',
    'answered; else that of the last failure: 255 where it was not reached or did not answer.',
  ],
}

export const TRUST: CommandSpec = {
  name: 'trust',
  text: 'what the trust rules say',
  group: true,
  examples: ['x0x trust evaluate laptop 6e1f…'],
  commands: [
    {
      name: 'evaluate',
      text: 'what would be decided now of an agent on a machine, and why; nothing is asked of it',
      arguments: [
        { flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' },
        {
          flags: '<machine>',
          completes: 'machines',
          text: 'its id, the first 6 or more characters of one that is known of the agent, or the name that x0x peers shows',
        },
      ],
      examples: ['x0x trust evaluate laptop 6e1f…', 'x0x trust evaluate laptop 6e1f… --json'],
      notes: [
        'Exit status 0: accepted, its commands go on to the ACL. 3: accepted for messages alone. 4: unknown, it gets nothing.',
        '5: rejected, links to it are closed.',
      ],
    },
  ],
}

export const TOKEN_NAMES = ['api-token', 'metrics-token', 'operator-key'] as const

export const KEYS: CommandSpec = {
  name: 'keys',
  text: 'keys and tokens of this daemon, made anew',
  group: true,
  examples: ['x0x keys rotate --yes', 'x0x keys rotate-token', 'x0x keys rotate-token operator-key'],
  commands: [
    {
      name: 'rotate',
      text: 'give this agent a new key, which the old one names to contacts; while no daemon runs, as its user',
      options: [{ flags: '--yes', text: 'yes: ACLs that list the old one are for their operators to change' }],
    },
    {
      name: 'rotate-token',
      text: 'make a secret of local callers anew, without a restart; the one before opens nothing more',
      arguments: [{ flags: '[which]', completes: TOKEN_NAMES, text: 'api-token, metrics-token or operator-key (default: api-token)' }],
    },
  ],
  notes: ['docs/keys.md: which key is for what, backups, and what to do when one got out.'],
}

const INIT: CommandSpec = {
  name: 'init',
  text: 'make what a daemon needs: directory, keys, configuration, and an ACL that allows nothing; what is there stays',
  options: [
    { flags: '--as <name>', text: 'what this agent calls itself (default: the name of this host)' },
    { flags: '--reachable', text: 'others may connect (default)', conflicts: ['only-asks'] },
    { flags: '--only-asks', text: 'it asks others, and listens nowhere' },
    { flags: '--user', text: 'it will run as this user (default)', conflicts: ['service'] },
    { flags: '--service', text: 'it will run as a service of the system' },
    { flags: '--dry-run', text: 'only say what would be made' },
  ],
  examples: ['x0x init', 'x0x init --as laptop --only-asks', 'x0x init --dry-run --json'],
  notes: ['At a terminal, and where there is no config.toml yet, it asks for what no option says.'],
}

const INVITE: CommandSpec = {
  name: 'invite',
  text: 'know, trust and pin another machine, and be known there: one line each way, and a code that is read aloud',
  usage: '[options] NAME [-- ARGV...]',
  arguments: [{ flags: '<name>', text: 'what we call it' }, { flags: '[argv...]' }],
  carries: true,
  examples: ['x0x invite alice', 'x0x invite alice -- df -h >> ~/.x0x/exec-acl.toml'],
  notes: [
    'With a command behind --, its entry of the ACL is printed to standard output; what is said and asked is on standard',
    'error. Nothing is changed before the codes fit, nor where Ctrl-C ends it. An invitation is good for an hour and once.',
  ],
}

const JOIN: CommandSpec = {
  name: 'join',
  text: 'the other side of x0x invite',
  arguments: [{ flags: '<line...>', text: 'x0x://invite/…, that x0x invite printed there; it may be wrapped' }],
  options: [{ flags: '--as <name>', text: 'what we call it (default: what it calls itself)' }],
  examples: ['x0x join x0x://invite/… --as bob'],
}

/** The commands that two machines need before the first run. */
export const FIRST_COMMANDS: readonly CommandSpec[] = [INIT, INVITE, JOIN]

const id: CommandSpec = {
  name: 'id',
  text: 'who this daemon is: agent, machine, name',
  commands: [
    {
      name: 'revoke',
      text: 'declare this agent, or its presence on one machine, void for ever',
      options: [
        { flags: '--machine <id>', text: 'only on this machine' },
        { flags: '--yes', text: 'yes, for ever' },
      ],
    },
  ],
}

const direct: CommandSpec = {
  name: 'direct',
  text: 'messages between agents',
  group: true,
  examples: ['x0x direct send laptop "the build is done"', 'x0x direct listen'],
  commands: [
    {
      name: 'send',
      text: 'send one message; answers when the other side has it',
      arguments: [
        { flags: '<agent>', completes: 'agents' },
        { flags: '[text]', text: '- or nothing: standard input' },
      ],
      options: [{ flags: '--content-type <type>', text: 'what it is', default: 'text/plain' }],
    },
    { name: 'listen', text: 'print messages as they come' },
  ],
}

const diagnostics: CommandSpec = {
  name: 'diagnostics',
  text: 'what the daemon counts',
  group: true,
  examples: ['x0x diagnostics exec'],
  commands: [
    { name: 'exec', text: 'commands run, denied and cut here' },
    { name: 'dm', text: 'links and messages' },
    { name: 'mesh', text: 'addresses, connections, discovery' },
  ],
}

const DIR: OptionSpec = { flags: '--dir <dir>', text: 'where they are (default: ~/.rexec)' }

const transcripts: CommandSpec = {
  name: 'transcripts',
  text: 'what ran under a console, with its output',
  group: true,
  examples: ['x0x transcripts list', 'x0x transcripts print 2026-05-21-09:42:18', 'x0x transcripts follow'],
  commands: [
    {
      name: 'list',
      text: 'the newest, newest first, and how many commands each has',
      options: [{ flags: '-n, --count <count>', text: 'how many', default: '10' }, DIR],
    },
    {
      name: 'print',
      text: 'print one as its console showed it; with --json each command is an object on a line',
      arguments: [{ flags: '[name]', text: 'default: the newest' }],
      options: [{ flags: '-f, --follow', text: 'go on as commands end' }, DIR],
    },
    {
      name: 'follow',
      text: 'print one and go on as commands end, until Ctrl-C',
      arguments: [{ flags: '[name]', text: 'default: the newest' }],
      options: [DIR],
    },
    {
      name: 'search',
      text: 'every line of every command that holds a text: names, directories, command lines, output; 1 where there is none',
      arguments: [
        { flags: '<text>', text: 'plain text; no character of it means anything else' },
        { flags: '[name]', text: 'default: in all' },
      ],
      options: [
        { flags: '-i, --ignore-case', text: 'find it in upper and lower case' },
        { flags: '-n, --count <count>', text: 'show so many', default: '1000' },
        DIR,
      ],
    },
    {
      name: 'export',
      text: 'print one in a form for other programs',
      arguments: [{ flags: '<name>' }],
      options: [
        {
          flags: '--format <format>',
          text: 'asciicast (version 2, for players of terminal recordings), jsonl or text; default: asciicast',
        },
        DIR,
      ],
    },
    {
      name: 'remove',
      text: 'remove some, each with what waits beside it',
      arguments: [{ flags: '<names...>' }],
      options: [DIR],
    },
  ],
}

const replay: CommandSpec = {
  name: 'replay',
  text: 'make the results of recorded runs of tools anew and compare: 0 where all are the same, 1 where one differs or the record has no end, 2 where the file is no record',
  arguments: [{ flags: '<file>', text: 'that x0x mcp --record has written' }],
  examples: ['x0x mcp --whoami reviewer --record run.jsonl', 'x0x replay run.jsonl'],
}

const version: CommandSpec = {
  name: 'version',
  text: 'of this command, its runtime, and the daemon that answers',
  examples: ['x0x version', 'x0x version --json'],
}

const completion: CommandSpec = {
  name: 'completion',
  text: 'print what makes bash, zsh or fish complete the command lines of x0x, x0xd, rexd and rexec',
  arguments: [
    { flags: '<shell>', completes: SHELLS, text: 'bash, zsh or fish; words: what may stand last in the command line behind --' },
    { flags: '[line...]' },
  ],
  usage: 'SHELL',
  carries: true,
  examples: [
    'source <(x0x completion bash)                            in ~/.bashrc',
    'source <(x0x completion zsh)                             in ~/.zshrc, behind compinit',
    'x0x completion fish > ~/.config/fish/completions/x0x.fish',
  ],
}

const man: CommandSpec = {
  name: 'man',
  text: 'print a manual page, for man -l',
  arguments: [{ flags: '[program]', completes: ['x0x', 'x0xd', 'rexd', 'rexec'], text: 'x0x, x0xd, rexd or rexec (default: x0x)' }],
  options: [{ flags: '--markdown', text: 'all of them on one page, as docs/cli.md has it' }],
  examples: ['x0x man x0xd | man -l -', 'x0x man --markdown > docs/cli.md'],
}

const events: CommandSpec = {
  name: 'events',
  text: 'what became of commands that this daemon asked for: started, finished with the end of their output, denied',
  options: [
    { flags: '--follow', text: 'go on with what comes, until it is ended' },
    { flags: '--since <n>', text: 'only events behind this number' },
    { flags: '--session <name>', text: 'only those of commands that were asked for with this session' },
  ],
  examples: ['x0x events', 'x0x events --follow', 'x0x events --since 42 --json'],
}

/** Help texts of the options of a plain exec, which is parsed without them. */
const OPTION_TEXTS: Readonly<Record<string, string>> = {
  '--name <name>': 'the daemon with this name (data in ~/.x0x-NAME)',
  '--data-dir <dir>': 'the daemon with this data directory',
  '--api <url>': 'an API elsewhere, such as http://127.0.0.1:12700; its token in X0X_API_TOKEN',
  '--json': 'print one JSON object',
  '-q, --quiet': 'results and failures alone: no notice, no progress, and nothing where something was only changed',
}

const PROGRAMS = ['mcp', 'ui', 'desk', 'bundle', 'rexd', 'console']

const X0X_WHOLE: CommandSpec = {
  name: 'x0x',
  text: 'Run strictly allowlisted commands on other machines over a peer-to-peer mesh.',
  group: true,
  programs: PROGRAMS,
  options: PLAIN_OPTIONS.map((option) => (option.text === '' ? { ...option, text: OPTION_TEXTS[option.flags] ?? '' } : option)),
  commands: [
    EXEC,
    RUNS,
    ATTACH,
    id,
    KEYS,
    { name: 'card', text: "print this agent's card: a signed link for x0x contacts import on the other side" },
    ...FIRST_COMMANDS,
    CONTACTS,
    TRUST,
    PING,
    DOCTOR,
    {
      name: 'peers',
      text: 'who is connected and who was discovered',
      options: [{ flags: '--graph', text: 'draw it: this daemon, a line to each of them, and how far it is' }],
    },
    direct,
    events,
    diagnostics,
    { name: 'routes', text: 'what the API offers' },
    ACL,
    AUDIT,
    APPROVALS,
    EXEC_MODE,
    transcripts,
    replay,
    completion,
    man,
    version,
  ],
  examples: [
    'x0x id                          who this daemon is',
    'x0x card                        a link for x0x contacts import over there',
    'x0x contacts trust bob trusted  then pin it: x0x contacts pin bob MACHINE',
    'x0x exec bob -- uptime          run there what its ACL lists, word for word',
    "x0x exec 'web[1-20]' -g -- df   on many, equal answers once",
    'x0x diagnostics exec            what was run, denied and cut here',
    'x0x audit timeline              the same, drawn over time',
    'x0x approvals watch             decide what may run, as it is asked',
    'x0x mcp --help                  tools for an AI agent',
    'x0x ui                          a page in your browser, with what waits',
    'x0x desk                        holds what must be asked, without a daemon',
    'x0x console --help              AI agents run commands, and a human watches',
    'x0x bundle                      a file for whoever helps, without a secret',
    'x0x doctor bob                  what is wrong between here and there',
    'x0x rexd --help                 commands, files, terminals for programs',
  ],
  notes: [
    '',
    "Every command takes --json. Exit status of exec: the remote command's own; 128+n",
    'when a signal ended it; 255 when it was denied, not reached, or ended by a',
    'limit. 2: the command line is wrong. Of many hosts: x0x exec --help.',
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
