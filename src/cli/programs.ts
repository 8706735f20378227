import { DEFAULT_REXD_CONFIG } from '../clients/paths.ts'
import { type CommandSpec, VERSION_OPTION } from './command.ts'

/** Options with which `x0x mcp` does not serve. */
const IN_PLACE_OF_SERVING = ['init', 'check']

/** A separate program, which takes no options of `x0x`. */
export const MCP: CommandSpec = {
  name: 'x0x mcp',
  text: 'Serve MCP tools to an AI agent',
  options: [
    { flags: '--whoami <name>', text: 'Name of the AI agent, recorded in the audit log' },
    { flags: '--config <file>', text: 'Read this configuration file', default: DEFAULT_REXD_CONFIG },
    { flags: '--init <dir>', text: 'Write a configuration for files in this directory', conflicts: ['check'] },
    { flags: '--check', text: 'Check the configuration, and exit' },
    { flags: '--json', text: 'Print one JSON object', goesWith: ['check'] },
    {
      flags: '--answer-within-ms <ms>',
      text: 'Answer each call within this time (default: 45000)',
      conflicts: IN_PLACE_OF_SERVING,
    },
    {
      flags: '--record <file>',
      text: 'Record all runs in a new file, for x0x replay',
      conflicts: IN_PLACE_OF_SERVING,
    },
    {
      flags: '--rules <agent>',
      text: 'Offer one tool for each command that agent allows',
      conflicts: ['check'],
    },
    VERSION_OPTION,
  ],
  examples: [
    'x0x mcp --init ~/myapp                             write a first configuration',
    'x0x mcp --init ~/myapp --rules bob                 the same, with the commands that bob allows as tools',
    'x0x mcp --check --config ~/agent.toml              check a configuration',
    'x0x mcp --whoami reviewer                          serve with /etc/rexd/config.toml',
    'x0x mcp --whoami reviewer --config ~/agent.toml    serve with your own configuration',
    'x0x mcp --whoami reviewer --rules bob              offer the commands that bob allows',
    'X0X_DATA_DIR=~/.x0x-lab x0x mcp --whoami reviewer  use the daemon of this data directory',
  ],
  notes: [
    'The runtime of the AI agent starts this program. It needs --whoami, except with --init or --check. It exits when its standard input ends, and stops all commands that it started.',
    'The configuration says what is allowed. Commands run as the user who starts the program. See docs/mcp.md.',
  ],
}

/** A separate program that serves a page to browsers on this machine. */
export const UI: CommandSpec = {
  name: 'x0x ui',
  text: 'Serve a page for approvals, runs and policy to browsers',
  options: [
    { flags: '--name <name>', text: 'Use the daemon with this name (~/.x0x-NAME, X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'Use this data directory (X0X_DATA_DIR)' },
    { flags: '--exec-acl <file>', text: 'Show this ACL (default: that of the daemon)' },
    {
      flags: '--config <file>',
      text: 'Show agents of this rexd or MCP configuration',
    },
    { flags: '--port <port>', text: 'Listen on this port; 0: any free port', default: '0' },
    // A fixed port may have belonged to another program, whose scripts a browser may have cached for this address.
    {
      flags: '--loopback-ip',
      text: 'Serve at http://127.0.0.1 instead of a localhost name',
      conflicts: ['port'],
    },
    { flags: '--json', text: 'Print each link as a JSON object' },
    VERSION_OPTION,
  ],
  examples: [
    'x0x ui                          follow the link within a minute; press Enter for a new one',
    'x0x ui --name lab               use the daemon that runs with --name lab',
    'x0x ui --port 8700              use a fixed port, for an SSH tunnel',
  ],
  notes: [
    'It prints a link that signs in once. Each start has a new address, such as http://3f0c….localhost:45317. If your browser cannot open it, use --loopback-ip.',
    'The page decides as you, so you must be able to read operator.key. While a page is open, it counts as an approver. See docs/require-approval.md.',
    'Without --config, the page shows agents of /etc/rexd/config.toml and of x0x mcp --init.',
  ],
}

/** A separate program that hosts the approval service without a daemon. */
export const DESK: CommandSpec = {
  name: 'x0x desk',
  text: 'Run the approval service without a daemon',
  options: [
    { flags: '--name <name>', text: 'Use the daemon with this name (~/.x0x-NAME, X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'Use this data directory (X0X_DATA_DIR)' },
    { flags: '--ask-timeout <seconds>', text: 'Time to answer a request, at most 1800', default: '120' },
    VERSION_OPTION,
  ],
  examples: ['x0x desk                        then, in another terminal: x0x approvals watch', 'x0x desk --ask-timeout 600'],
  exits: [['1', 'x0xd or another x0x desk serves this data directory']],
  notes: ['It runs until you stop it. Open requests are then denied; grants stay. See docs/require-approval.md.'],
}

/** A separate program that examines the installation, as `x0xd --doctor` does. */
export const BUNDLE: CommandSpec = {
  name: 'x0x bundle',
  text: 'Write a support file without secrets',
  usage: '[options] [FILE]',
  arguments: [{ flags: '[file]', text: 'New file (default: x0x-bundle-TIME.json)' }],
  options: [
    { flags: '--name <name>', text: 'Use the daemon with this name (~/.x0x-NAME, X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'Use this data directory (X0X_DATA_DIR)' },
    { flags: '--config <file>', text: 'Use this configuration file (X0X_CONFIG)' },
    { flags: '--exec-acl <file>', text: 'Use this ACL file' },
    { flags: '--log <file>', text: 'Add the end of this log; - reads standard input' },
    { flags: '--json', text: 'Print the path as a JSON object' },
    VERSION_OPTION,
  ],
  examples: [
    'x0x bundle',
    'journalctl -u x0xd -n 500 -o cat | x0x bundle --log -',
    'x0x bundle --name lab ~/lab.json && less ~/lab.json     read it before you send it',
  ],
  exits: [
    ['0', 'Written'],
    ['1', 'Not written'],
  ],
  notes: [
    'The file has findings, versions, counters and the ends of logs. It has no key, token, command, directory or name. IDs, addresses and paths are hashed with a key that is thrown away. Only its owner can read the file (mode 0600). An existing file is never overwritten.',
  ],
}

export const X0XD: CommandSpec = {
  name: 'x0xd',
  text: 'Connect this machine to the mesh and run allowed commands',
  options: [
    { flags: '--name <name>', text: 'Run a second daemon, with data in ~/.x0x-NAME' },
    { flags: '--config <file>', text: 'Read this file (default: config.toml in the data directory)' },
    { flags: '--data-dir <dir>', text: 'Use this data directory (default: ~/.x0x or ~/.x0x-NAME)' },
    {
      flags: '--exec-acl <file>',
      text: 'Read the ACL from this file',
    },
    { flags: '--api-port <port>', text: 'Serve the API on this port of 127.0.0.1' },
    { flags: '--listen <multiaddr>', text: 'Listen for peers on this address (repeatable)' },
    { flags: '--bootstrap <multiaddr>', text: 'Connect to this peer at start (repeatable)' },
    { flags: '--executor-socket <path>', text: 'Wait on this socket for a separate network process' },
    { flags: '--init', text: 'First create missing files, as x0x init does', conflicts: ['check', 'doctor'] },
    { flags: '--enrol <token>', text: 'Enrol this machine with a token, or @FILE (X0X_ENROL)', goesWith: ['init'] },
    { flags: '--enrol-as <name>', text: 'Require this name from the operator', goesWith: ['init'] },
    { flags: '--append', text: 'Let the enrolment add entries to an edited ACL', goesWith: ['init'] },
    { flags: '--replace', text: 'First stop the daemon that uses the data directory', conflicts: ['check', 'doctor'] },
    { flags: '--drain <duration>', text: 'Wait up to this time for its runs (5m)', goesWith: ['replace'] },
    { flags: '--drain-timeout <secs>', text: 'On SIGTERM, let runs end first, up to this time' },
    { flags: '--check', text: 'Check configuration and ACL, and exit', conflicts: ['doctor'] },
    { flags: '--doctor', text: 'Check this installation, and exit' },
    { flags: '--json', text: 'Print one JSON object', goesWith: ['check', 'doctor'] },
    VERSION_OPTION,
  ],
  examples: [
    'x0xd --init                              start a daemon of this user: data and ACL in ~/.x0x',
    'x0xd --init --enrol x0xe1.…              start it, and have an operator enrol this machine',
    'x0xd --name lab --init                   start a second one, with data in ~/.x0x-lab',
    'x0xd --listen /ip4/0.0.0.0/tcp/5483 --bootstrap /ip4/192.0.2.7/tcp/5483/p2p/12D3Koo…',
    'x0xd --check --exec-acl ./exec-acl.toml  check a configuration and an ACL',
    'x0xd --replace --drain 5m                restart; runs have 5 minutes to end, new ones wait',
    'x0xd --doctor                            check the installation and print remedies',
  ],
  notes: [
    'An option overrides an X0X_* variable, which overrides config.toml. See docs/config.md.',
    'With --drain, Ctrl-C cancels the restart, and the running daemon accepts new runs again. See docs/upgrade.md.',
    'A token comes from x0x enrol create. Without --enrol, --init reads it from X0X_ENROL, or from the systemd credential x0x-enrol. See docs/enrol.md.',
    'The default ACL is /etc/x0x/exec-acl.toml; with --name, it is exec-acl.toml in the data directory. --api-port 0 selects a free port.',
  ],
}
