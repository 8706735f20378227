import { type CommandSpec, VERSION_OPTION } from './command.ts'

/** A program of its own: it serves a page to the browsers of this host. */
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
    // A port that is known before can have been another program's, whose scripts a browser then has for this address.
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
    'x0x ui --port 8700              for a tunnel: see "From another machine" in docs/approvals.md',
  ],
  notes: [
    '',
    'It needs the right to read operator.key, and decides as you. While a page is open, questions wait for it; without one, a',
    'question that no other window shows is answered by its fallback at once. See docs/approvals.md.',
  ],
}
