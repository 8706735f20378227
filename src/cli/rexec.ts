import { type CommandSpec, VERSION_OPTION } from './command.ts'
import type { CommandLine } from './parse.ts'
import { badFlags, programLine } from './program-line.ts'

/** Options that select what `rexec` does; without one it runs a command. */
const MODES = ['start-host', 'check-host', 'list', 'print', 'attach', 'mcp-stdio', 'install']
/** The default count of `--list`. */
const LISTED = '10'

export const REXEC: CommandSpec = {
  name: 'rexec',
  text: 'Runs commands of AI agents where a human watches: one host for each user, one screen, one transcript.',
  usage: '--whoami NAME --dir DIR [options] -- COMMAND...',
  arguments: [{ flags: '[command...]', text: 'the program and its arguments, behind --' }],
  hint: 'the command stands behind two dashes, such as: -- ls -l',
  options: [
    { flags: '-s, --start-host', text: 'be the host: run what agents send, show it, keep it; Ctrl-C ends it', conflicts: MODES },
    {
      flags: '--silent',
      text: 'with --start-host: show no commands',
      conflicts: ['plain', 'watch-journal'],
      goesWith: ['start-host'],
    },
    { flags: '--plain', text: 'with --start-host: lines only, nothing is drawn anew: for a screen reader', goesWith: ['start-host'] },
    {
      flags: '--watch-journal <file>',
      text: 'with --start-host: also show what this journal of x0xd, rexd or x0x mcp tells; may be repeated',
      goesWith: ['start-host'],
    },
    { flags: '--no-add-path', text: 'with --start-host: leave PATH without ~/.local/bin and ~/.cargo/bin', goesWith: ['start-host'] },
    {
      flags: '--record-env',
      text: 'with --start-host: write the values of --env into the transcript, and not their names alone',
      goesWith: ['start-host'],
    },
    {
      flags: '--config <file>',
      text: 'with --start-host: where commands run, how far they may go and whom to ask: [tools.exec] and [[agents.list]]',
      goesWith: ['start-host'],
    },
    { flags: '-c, --check-host', text: 'print HOST RUNNING, or HOST NOT FOUND and exit 127', conflicts: MODES },
    {
      flags: '--whoami <name>',
      text: 'who asks: it stands before the command on the screen and in the transcript',
      conflicts: MODES.filter((mode) => mode !== 'mcp-stdio'),
    },
    { flags: '--dir <dir>', text: 'where the command runs', conflicts: MODES },
    { flags: '-e, --env <variable=value>', text: "set a variable beside the host's; may be repeated", conflicts: MODES },
    { flags: '--clear-env', text: "leave all of the host's variables out", conflicts: MODES },
    { flags: '--read-stdin', text: 'give the command our standard input, read to its end, UTF-8', conflicts: MODES },
    { flags: '--timeout <seconds>', text: 'end the command after this time; 0: never', conflicts: MODES },
    { flags: '-l, --list <count>', text: 'name the newest transcripts, newest first; without a count 10', conflicts: MODES },
    { flags: '-p, --print', text: 'print the transcript that is named, as the console shows it', conflicts: MODES },
    { flags: '-f, --follow', text: 'with --print: go on as commands end', goesWith: ['print'] },
    { flags: '--attach', text: 'print commands as they end on the running host', conflicts: MODES },
    {
      flags: '--no-color',
      text: 'with --start-host and --attach: without colours',
      conflicts: ['force-color'],
      goesWith: ['start-host', 'attach'],
    },
    { flags: '--force-color', text: 'with these: with colours, whatever reads them', goesWith: ['start-host', 'attach'] },
    {
      flags: '-m, --mcp-stdio',
      text: 'serve MCP on standard input and output: the tools exec and check_host, in the name of --whoami',
      conflicts: MODES,
    },
    { flags: '--install', text: 'write a systemd unit that keeps a silent host', conflicts: MODES },
    VERSION_OPTION,
  ],
  examples: [
    'rexec --start-host                                   in a terminal: the screen of the human',
    'rexec --whoami Codex --dir . -- git status           from an agent: one command',
    'rexec --whoami Codex --dir /srv/app -e CI=1 --timeout 600 -- npm test',
    'git diff | rexec --whoami Codex --dir . --read-stdin -- wc -l',
    'rexec --check-host                                   is there a host?',
    'rexec --attach                                       another screen',
    'rexec --list 10                                      transcripts; rexec --print 2026-05-21-09:42:18 prints one',
    'rexec --mcp-stdio --whoami "Claude Code"             as a tool of an agent runtime',
    'x0x console                                          the same as rexec --start-host; x0x console run ... as rexec ...',
  ],
  notes: [
    '',
    'Exit status: that of the command; 128+n when signal n ended it; 124 when its time was up; 127 when it could not be run or',
    'no host listens; 2 when the command line is wrong. See docs/console.md.',
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
