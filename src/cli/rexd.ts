import { DEFAULT_REXD_CONFIG } from '../clients/paths.ts'
import { type CommandSpec, VERSION_OPTION } from './command.ts'

export const REXD: CommandSpec = {
  name: 'rexd',
  text: 'Run commands and access files for REXD/1 clients',
  options: [
    { flags: '--stdio', text: 'Serve on standard input and output', conflicts: ['check', 'http'] },
    { flags: '--http', text: 'Serve HTTP and WebSocket, as configured', conflicts: ['check'] },
    {
      flags: '--exit-on-eof',
      text: 'Exit when standard input ends',
      goesWith: ['http'],
    },
    { flags: '--config <file>', text: 'Read this configuration file', default: DEFAULT_REXD_CONFIG },
    { flags: '--check', text: 'Check the configuration, and exit' },
    { flags: '--json', text: 'Print one JSON object', goesWith: ['check'] },
    VERSION_OPTION,
  ],
  examples: [
    'rexd --stdio                              serve JSON-RPC 2.0, one object per line',
    'ssh server-a rexd --stdio                 serve on another machine, with the rights of the SSH user',
    'rexd --stdio --config ~/rexd.toml         use your own configuration',
    'rexd --http --config ~/rexd.toml          serve at server.http_listen',
    'rexd --check --config ./config.toml       check a configuration',
    'rexd exec --ssh server-a -- git status    run one command; see rexd exec --help',
  ],
  notes: [
    `The configuration (${DEFAULT_REXD_CONFIG}) says what is allowed. Commands run as the user who starts rexd. See docs/rexd.md.`,
    'Use --exit-on-eof only with --http, and --json only with --check.',
  ],
}

/** A separate program, which takes no options of `rexd`. */
export const REXD_EXEC: CommandSpec = {
  name: 'rexd exec',
  text: 'Run one command through rexd',
  arguments: [{ flags: '<argv...>', text: 'Program and arguments, after --' }],
  hint: 'Put the command after "--", such as: -- ls -l',
  options: [
    { flags: '--ssh <host>', text: 'Start rexd on this host through ssh', conflicts: ['url', 'config'] },
    { flags: '--url <url>', text: 'Connect to rexd --http at this URL', conflicts: ['config'] },
    { flags: '--token-file <file>', text: 'Read the token for --url from this file' },
    { flags: '--config <file>', text: 'Start rexd on this machine with this configuration', default: DEFAULT_REXD_CONFIG },
    { flags: '--target <agent>', text: 'Run on this agent of the mesh' },
    { flags: '--host <host>', text: 'Set the execution host: sandbox, gateway or node', conflicts: ['target'] },
    { flags: '--node <agent>', text: 'Select the agent for --host node', goesWith: ['host'] },
    { flags: '--security <mode>', text: 'Ask for a stricter mode: deny, allowlist or full' },
    { flags: '--ask <mode>', text: 'Ask for more approvals: off, on-miss or always' },
    { flags: '--cwd <dir>', text: 'Run in this directory' },
    {
      flags: '--timeout <seconds>',
      text: 'Stop the command after this many seconds',
    },
    { flags: '--stdin', text: 'Send standard input to the command', conflicts: ['tty'] },
    { flags: '--tty', text: 'Run on a terminal', conflicts: ['target'] },
  ],
  examples: [
    'rexd exec --ssh server-a -- git status --short       start rexd on server-a',
    'rexd exec --ssh server-a --tty -- top                needs security.allow_pty',
    'rexd exec --url ws://127.0.0.1:7680 --token-file t -- make test',
    'rexd exec --config ~/rexd.toml --target saorsa-7 -- uptime',
    'tar c . | rexd exec --ssh server-a --stdin --cwd /srv/app -- tar x',
  ],
  exits: [
    ['0-254', 'Exit status of the command; 128+n after signal n'],
    ['141', 'The reader of the output has closed it'],
    ['255', 'The command could not run, its end is not known, or its input was not sent'],
    ['2', 'The command line is wrong, or there is input that would not be sent'],
  ],
  notes: [
    'URLs are ws://HOST:PORT, wss://HOST:PORT or unix:/PATH. --target needs security.allow_targets; --host needs [tools.exec].',
    'Without --timeout, limits.default_timeout_ms of the server is the limit; with --tty it is limits.hard_timeout_ms.',
  ],
}
