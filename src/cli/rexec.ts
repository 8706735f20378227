import { type CommandSpec, VERSION_OPTION } from './command.ts'
import type { CommandLine } from './parse.ts'
import { badFlags, programLine } from './program-line.ts'

/** Options that select what `rexec` does; without one it runs a command. */
const MODES = ['start-host', 'check-host', 'list', 'print', 'attach', 'mcp-stdio', 'install']
/** The default count of `--list`. */
const LISTED = '10'

export const REXEC: CommandSpec = {
  name: 'rexec',
  text: 'Run commands of AI agents in a visible console',
  usage: '--whoami NAME --dir DIR [options] -- COMMAND...',
  arguments: [{ flags: '[command...]', text: 'Program and arguments, after --' }],
  hint: 'Put the command after "--", such as: -- ls -l',
  options: [
    { flags: '-s, --start-host', text: 'Start the host, which runs and shows commands', conflicts: MODES },
    {
      flags: '--silent',
      text: 'Show no commands',
      conflicts: ['plain', 'watch-journal'],
      goesWith: ['start-host'],
    },
    { flags: '--plain', text: 'Print plain lines, for a screen reader', goesWith: ['start-host'] },
    {
      flags: '--watch-journal <file>',
      text: 'Show the runs of this audit log too (repeatable)',
      goesWith: ['start-host'],
    },
    { flags: '--no-add-path', text: 'Do not add ~/.local/bin and ~/.cargo/bin to PATH', goesWith: ['start-host'] },
    {
      flags: '--record-env',
      text: 'Record values of --env in the transcript',
      goesWith: ['start-host'],
    },
    {
      flags: '--config <file>',
      text: 'Read [tools.exec] and [[agents.list]] from this file',
      goesWith: ['start-host'],
    },
    { flags: '-c, --check-host', text: 'Check that a host is running', conflicts: MODES },
    {
      flags: '--whoami <name>',
      text: 'Name the AI agent, for screen and transcript',
      conflicts: MODES.filter((mode) => mode !== 'mcp-stdio'),
    },
    { flags: '--dir <dir>', text: 'Run in this directory', conflicts: MODES },
    { flags: '-e, --env <variable=value>', text: 'Set an environment variable (repeatable)', conflicts: MODES },
    { flags: '--clear-env', text: "Run without the host's environment variables", conflicts: MODES },
    { flags: '--read-stdin', text: 'Send standard input (UTF-8) to the command', conflicts: MODES },
    { flags: '--timeout <seconds>', text: 'Stop the command after this many seconds; 0: never', conflicts: MODES },
    { flags: '-l, --list <count>', text: 'List the newest transcripts, 10 by default', conflicts: MODES },
    { flags: '-p, --print', text: 'Print the transcript with this name', conflicts: MODES },
    { flags: '-f, --follow', text: 'Continue to print new commands', goesWith: ['print'] },
    { flags: '--attach', text: 'Show commands of the running host', conflicts: MODES },
    {
      flags: '--no-color',
      text: 'Print without colors',
      conflicts: ['force-color'],
      goesWith: ['start-host', 'attach'],
    },
    { flags: '--force-color', text: 'Print with colors, also to a file or pipe', goesWith: ['start-host', 'attach'] },
    {
      flags: '-m, --mcp-stdio',
      text: 'Serve the MCP tools exec and check_host',
      conflicts: MODES,
    },
    { flags: '--install', text: 'Write a systemd unit for a silent host', conflicts: MODES },
    VERSION_OPTION,
  ],
  examples: [
    'rexec --start-host                                   start the host in a terminal',
    'rexec --whoami Codex --dir . -- git status           run a command as an AI agent',
    'rexec --whoami Codex --dir /srv/app -e CI=1 --timeout 600 -- npm test',
    'git diff | rexec --whoami Codex --dir . --read-stdin -- wc -l',
    'rexec --check-host                                   check that a host is running',
    'rexec --attach                                       show the commands on another screen',
    'rexec --list 10                                      list transcripts',
    'rexec --print 2026-05-21-09:42:18                    print one',
    'rexec --mcp-stdio --whoami "Claude Code"             serve as a tool of an agent runtime',
    'x0x console                                          start the host, as rexec --start-host',
  ],
  exits: [
    ['0-255', 'Exit status of the command; 128+n after signal n'],
    ['124', 'The time of --timeout was up'],
    ['127', 'The command could not start, or no host is running'],
    ['255', 'Standard input got data during the run, which was not sent'],
    ['2', 'The command line is wrong, or there is input that would not be sent'],
  ],
  notes: [
    'These options need --start-host: --silent, --plain, --watch-journal, --no-add-path, --record-env and --config. --follow needs --print. The options for colors need --start-host or --attach.',
    'x0x console run ... is the same as rexec .... See docs/console.md.',
  ],
}

/** Adds the default count after `--list`, because the parser has no options with an optional value. */
const withCount = (argv: readonly string[]): string[] => {
  const dashes = argv.indexOf('--')
  const end = dashes === -1 ? argv.length : dashes
  const at = argv.findIndex((word, place) => place < end && (word === '--list' || word === '-l'))
  return at === -1 || /^\d/.test(argv[at + 1] ?? '') ? [...argv] : argv.toSpliced(at + 1, 0, LISTED)
}

/** Parses the words after `rexec`. Returns the text to print if they ask for help or the version. Throws `bad_config`. */
export const rexecLine = (argv: readonly string[]): CommandLine | string => {
  const line = programLine(REXEC, withCount(argv))
  const mode = typeof line === 'string' ? undefined : MODES.find((name) => line.has(name))
  if (typeof line !== 'string' && mode !== undefined && mode !== 'print' && line.words.length > 0)
    throw badFlags(`--${mode} takes no words: ${JSON.stringify(line.words[0])}`, REXEC.name)
  return line
}

/** Whether flags ask for colours, or null if none does. */
export const colourOf = (line: CommandLine): boolean | null => (line.has('no-color') ? false : line.has('force-color') ? true : null)
