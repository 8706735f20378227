import { DEFAULT_REXD_CONFIG } from '../clients/paths.ts'
import { type CommandSpec, VERSION_OPTION } from './command.ts'

export const REXD: CommandSpec = {
  name: 'rexd',
  text: 'Runs commands and looks after files for a program that speaks REXD/1, within configured roots.',
  options: [
    { flags: '--stdio', text: 'serve standard input and output until they end', conflicts: ['check', 'http'] },
    { flags: '--http', text: 'serve HTTP and WebSocket, where the configuration says', conflicts: ['check'] },
    {
      flags: '--exit-on-eof',
      text: 'with --http: end when standard input ends, as it does when its parent dies',
      goesWith: ['http'],
    },
    { flags: '--config <file>', text: 'configuration file', default: DEFAULT_REXD_CONFIG },
    { flags: '--check', text: 'check the configuration, serve nothing' },
    { flags: '--json', text: 'with --check: one JSON object', goesWith: ['check'] },
    VERSION_OPTION,
  ],
  examples: [
    'rexd --stdio                              JSON-RPC 2.0, one object per line, on standard input and output',
    'ssh server-a rexd --stdio                 the same on another machine, by whoever may log in there',
    "rexd --stdio --config ~/rexd.toml         with a configuration of one's own",
    'rexd --http --config ~/rexd.toml          HTTP and WebSocket, where server.http_listen says',
    'rexd --check --config ./config.toml       would this configuration do?',
    'rexd exec --ssh server-a -- git status    one command through a rexd; see rexd exec --help',
  ],
  notes: ['', `It runs what ${DEFAULT_REXD_CONFIG} allows, as the user who starts it. See docs/rexd.md.`],
}

/** A separate program, which takes no options of `rexd`. */
export const REXD_EXEC: CommandSpec = {
  name: 'rexd exec',
  text: 'Runs one command through a rexd: of this host, behind ssh, or one that listens.',
  arguments: [{ flags: '<argv...>', text: 'the program and its arguments, behind --' }],
  hint: 'the command stands behind two dashes, such as: -- ls -l',
  options: [
    { flags: '--ssh <host>', text: 'through `ssh -T HOST rexd --stdio`', conflicts: ['url', 'config'] },
    { flags: '--url <url>', text: 'where rexd --http listens: ws://host:port, wss://…, unix:/path', conflicts: ['config'] },
    { flags: '--token-file <file>', text: 'with --url: a copy of its token_file' },
    { flags: '--config <file>', text: 'of the rexd that is started here', default: DEFAULT_REXD_CONFIG },
    { flags: '--target <agent>', text: 'on an agent of the mesh, where security.allow_targets has it' },
    { flags: '--host <host>', text: 'sandbox, gateway or node, where [tools.exec] there lets callers choose', conflicts: ['target'] },
    { flags: '--node <agent>', text: 'with --host node: which', goesWith: ['host'] },
    { flags: '--security <mode>', text: 'deny, allowlist or full; only narrows' },
    { flags: '--ask <mode>', text: 'off, on-miss or always; only narrows' },
    { flags: '--cwd <dir>', text: 'where it runs' },
    {
      flags: '--timeout <seconds>',
      text: "when it is ended; the server's limits.default_timeout_ms unless told, with --tty its hard_timeout_ms",
    },
    { flags: '--stdin', text: 'give it our standard input', conflicts: ['tty'] },
    { flags: '--tty', text: 'on a terminal of its own', conflicts: ['target'] },
  ],
  examples: [
    'rexd exec --ssh server-a -- git status --short           through a rexd that ssh starts there',
    'rexd exec --ssh server-a --tty -- top                    on a terminal, where security.allow_pty grants it',
    'rexd exec --url ws://127.0.0.1:7680 --token-file t -- make test',
    'rexd exec --config ~/rexd.toml --target saorsa-7 -- uptime',
    'tar c . | rexd exec --ssh server-a --stdin --cwd /srv/app -- tar x',
  ],
  notes: [
    '',
    'Exit status: that of the command, 128+n when signal n ended it, 141 when nobody reads us any more, 255 when it could',
    'not be run or its end is not known.',
  ],
}
