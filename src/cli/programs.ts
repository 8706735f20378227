import { DEFAULT_REXD_CONFIG } from '../clients/paths.ts'
import { type CommandSpec, VERSION_OPTION } from './command.ts'

/** Options with which `x0x mcp` does not serve. */
const IN_PLACE_OF_SERVING = ['init', 'check']

/** A separate program, which takes no options of `x0x`. */
export const MCP: CommandSpec = {
  name: 'x0x mcp',
  summary: 'tools for an AI agent, over standard input and output (Model Context Protocol)',
  text: 'Serves tools for an AI agent over standard input and output, by the Model Context Protocol.',
  options: [
    { flags: '--whoami <name>', text: 'who calls: the name that the journal has of its runs; needed to serve' },
    { flags: '--config <file>', text: 'configuration file, as of rexd', default: DEFAULT_REXD_CONFIG },
    { flags: '--init <dir>', text: 'write a first configuration: files below this directory, and no shell', conflicts: ['check'] },
    { flags: '--check', text: 'check the configuration, serve nothing' },
    { flags: '--json', text: 'with --check: one JSON object', goesWith: ['check'] },
    {
      flags: '--answer-within-ms <ms>',
      text: "a call is answered by then, whatever its command does (default: the file's, else 45000)",
      conflicts: IN_PLACE_OF_SERVING,
    },
    {
      flags: '--record <file>',
      text: 'make this file and write into it what happens to every run, output too, for x0x replay',
      conflicts: IN_PLACE_OF_SERVING,
    },
    {
      flags: '--rules <agent>',
      text: 'in place of the tools that take a command: one for each command that this agent of the mesh allows us, as it tells them',
      conflicts: IN_PLACE_OF_SERVING,
    },
    VERSION_OPTION,
  ],
  examples: [
    'x0x mcp --init ~/myapp                             a first configuration, and the JSON for a runtime of agents',
    'x0x mcp --check --config ~/agent.toml              would this configuration do?',
    'x0x mcp --whoami reviewer                          with /etc/rexd/config.toml',
    "x0x mcp --whoami reviewer --config ~/agent.toml    with a configuration of one's own",
    'x0x mcp --whoami reviewer --rules bob              a tool for each command that bob allows (x0x acl mine bob)',
    'X0X_DATA_DIR=~/.x0x-lab x0x mcp --whoami reviewer  targets by the daemon of this data directory',
  ],
  notes: [
    '',
    'A runtime of agents starts it; its configuration names this command line. It ends with its standard input, and with it all',
    'that it started. It runs what the configuration allows, as the user who starts it. See docs/mcp.md.',
  ],
}

/** A separate program that serves a page to browsers on this machine. */
export const UI: CommandSpec = {
  name: 'x0x ui',
  summary: 'a page in your browser: what waits for your decision, what runs, peers, journals, policy',
  text:
    'Serves a page to the browsers of this host and prints a link that signs in once. Each start has a new address, such as ' +
    'http://3f0c….localhost:45317, which browsers find on this host.',
  options: [
    { flags: '--name <name>', text: 'instance of the daemon: its data directory is ~/.x0x-NAME (X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'data directory (X0X_DATA_DIR)' },
    { flags: '--exec-acl <file>', text: 'the ACL whose policy is shown; default: that of the daemon' },
    {
      flags: '--config <file>',
      text: 'configuration of rexd or x0x mcp whose agents are shown; default: /etc/rexd/config.toml, and those of x0x mcp --init',
    },
    { flags: '--port <port>', text: 'port on this host; 0: any that is free', default: '0' },
    // A fixed port may have belonged to another program, whose scripts a browser may have cached for this address.
    {
      flags: '--loopback-ip',
      text: 'serve at http://127.0.0.1, at any free port, for a browser that does not find the name',
      conflicts: ['port'],
    },
    { flags: '--json', text: 'print each link as a JSON object' },
    VERSION_OPTION,
  ],
  examples: [
    'x0x ui                          follow the link within a minute; Enter prints a new one, Ctrl-C ends it',
    'x0x ui --name lab               of the daemon that was started with --name lab',
    'x0x ui --port 8700              for a tunnel: see "Decide from another machine" in docs/require-approval.md',
  ],
  notes: [
    '',
    'It needs the right to read operator.key, and decides as you. While a page is open, questions wait for it; without one, a',
    'question that no other window shows is answered by its fallback at once. See docs/require-approval.md.',
  ],
}

/** A separate program that hosts the approval service without a daemon. */
export const DESK: CommandSpec = {
  name: 'x0x desk',
  summary: 'holds what a human must allow, where no x0xd runs',
  text: 'Holds the approvals of this data directory and asks the humans who watch, until it is ended. x0xd does the same by itself.',
  options: [
    { flags: '--name <name>', text: 'instance of the daemon: its data directory is ~/.x0x-NAME (X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'data directory (X0X_DATA_DIR)' },
    { flags: '--ask-timeout <seconds>', text: 'how long a human has, at most 1800', default: '120' },
    VERSION_OPTION,
  ],
  examples: ['x0x desk                        then, in another terminal: x0x approvals watch', 'x0x desk --ask-timeout 600'],
  notes: [
    '',
    'Where x0xd or another x0x desk holds them already, it says so and ends with exit status 1. When it ends, what waits is',
    'denied; what was allowed for longer stays. See docs/require-approval.md.',
  ],
}

/** A separate program that examines the installation, as `x0xd --doctor` does. */
export const BUNDLE: CommandSpec = {
  name: 'x0x bundle',
  summary: 'a file for whoever helps you: findings, versions, counters, the ends of journals; no key, no command, no name',
  text: 'Writes one JSON text for whoever helps you. What it quotes has no key, token, command, directory or name in it.',
  usage: '[options] [FILE]',
  arguments: [{ flags: '[file]', text: 'default: x0x-bundle-TIME.json here; one that is there is never written over' }],
  options: [
    { flags: '--name <name>', text: 'instance of the daemon: its data directory is ~/.x0x-NAME (X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'data directory (X0X_DATA_DIR)' },
    { flags: '--config <file>', text: 'its configuration; default: config.toml in the data directory (X0X_CONFIG)' },
    { flags: '--exec-acl <file>', text: 'its ACL, where it was started with another than the default' },
    { flags: '--log <file>', text: 'the last lines of its log too; -: standard input' },
    { flags: '--json', text: 'say where it was written as one JSON object' },
    VERSION_OPTION,
  ],
  examples: [
    'x0x bundle',
    'journalctl -u x0xd -n 500 -o cat | x0x bundle --log -',
    'x0x bundle --name lab ~/lab.json && less ~/lab.json     read it before you send it',
  ],
  notes: [
    '',
    'Ids, addresses, paths and names are hashed under a key that is thrown away: the same one has the same hash within one',
    'bundle, and means nothing elsewhere. The file is for its owner alone (0600). Exit status 0; 1 where it was not written.',
  ],
}

export const X0XD: CommandSpec = {
  name: 'x0xd',
  text: 'The x0x daemon: keeps this machine on the mesh and runs what its ACL allows.',
  options: [
    { flags: '--name <name>', text: 'run beside other daemons of this user, with its own data directory' },
    { flags: '--config <file>', text: 'configuration file (default: config.toml in the data directory)' },
    { flags: '--data-dir <dir>', text: 'keys, contacts, token and socket (default: ~/.x0x or ~/.x0x-NAME)' },
    {
      flags: '--exec-acl <file>',
      text: 'who may run what here (default: /etc/x0x/exec-acl.toml; with --name: in the data directory)',
    },
    { flags: '--api-port <port>', text: 'port of the API on 127.0.0.1; 0 = any free one' },
    { flags: '--listen <multiaddr>', text: 'listen here for peers; may be repeated' },
    { flags: '--bootstrap <multiaddr>', text: 'dial this peer at start; may be repeated' },
    { flags: '--executor-socket <path>', text: 'start no network half; one that others start connects here' },
    { flags: '--init', text: 'first make what is missing in the data directory, as x0x init does', conflicts: ['check', 'doctor'] },
    { flags: '--replace', text: 'first end the daemon that has the data directory', conflicts: ['check', 'doctor'] },
    { flags: '--check', text: 'check configuration and ACL, start nothing', conflicts: ['doctor'] },
    { flags: '--doctor', text: 'examine this installation, start nothing' },
    { flags: '--json', text: 'with --check or --doctor: one JSON object', goesWith: ['check', 'doctor'] },
    VERSION_OPTION,
  ],
  examples: [
    'x0xd --init                              the daemon of this user: data and ACL in ~/.x0x',
    'x0xd --name lab --init                   a second one beside it: data in ~/.x0x-lab, any free API port',
    'x0xd --listen /ip4/0.0.0.0/tcp/5483 --bootstrap /ip4/192.0.2.7/tcp/5483/p2p/12D3Koo…',
    'x0xd --check --exec-acl ./exec-acl.toml  would this configuration and this ACL start?',
    'x0xd --doctor                            what is right, what is not, and how to mend it',
  ],
  notes: ['', 'Settings are taken from flags, then X0X_* variables, then config.toml, then the defaults.', 'See docs/config.md.'],
}
