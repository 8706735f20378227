import { type CommandSpec, VERSION_OPTION } from './command.ts'

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
