import type { CommandSpec } from './command.ts'

export const ACL: CommandSpec = {
  name: 'acl',
  text: 'examine an ACL file, for which no daemon is needed where the file is named; ask an agent what we may run there',
  group: true,
  examples: ['x0x acl check /etc/x0x/exec-acl.toml', 'x0x acl mine bob'],
  commands: [
    {
      name: 'check',
      text: 'every problem of the file, and what its commands could be bent to',
      arguments: [{ flags: '[file]', text: 'without one: the file that the running daemon reads' }],
    },
    {
      name: 'explain',
      text: 'would this be allowed, and what decides',
      usage: '[FILE] (--last [--agent AGENT] | --agent ID --machine ID -- ARGV...)',
      arguments: [{ flags: '[file]', text: 'without one: the file that the running daemon reads' }, { flags: '[argv...]' }],
      carries: true,
      options: [
        {
          flags: '--last',
          text: 'the last denial in the audit log of this machine; with --agent, of that agent',
          conflicts: ['machine', 'detach'],
        },
        { flags: '--agent <id>', text: 'who asks' },
        { flags: '--machine <id>', text: 'from where' },
        { flags: '--detach', text: 'the command is to outlive its caller' },
      ],
      notes: [
        'Exit status 0: allowed. 1: denied, or the file has changed since x0xd read it and is not in force. 2: the file is not valid.',
      ],
      examples: [
        'x0x acl explain --last',
        'x0x acl explain --agent 3f2a… --machine 6e1f… -- echo 42',
        'x0x acl explain /etc/x0x/exec-acl.toml --agent 3f2a… --machine 6e1f… -- echo 42',
      ],
    },
    {
      name: 'diff',
      text: 'what a file allows more and less than another, or than what the running daemon has loaded',
      arguments: [
        {
          flags: '[old]',
          text: 'with one file alone: the new one, beside what the running daemon has loaded; without any: the file that the daemon reads',
        },
        { flags: '[new]' },
      ],
      examples: ['x0x acl diff', 'x0x acl diff /etc/x0x/exec-acl.toml', 'x0x acl diff exec-acl.toml.old exec-acl.toml'],
      notes: [
        'Exit status 0: they allow the same. 3: the new one narrows, and a running daemon takes it at a reload (SIGHUP,',
        'systemctl reload x0xd). 4: it widens, or cannot be proven not to, and needs a restart. 2: a file is not valid.',
      ],
    },
    {
      name: 'suggest',
      text: 'print the entry that would have allowed what was denied last, and nothing more, to be pasted; what allows more takes a restart',
      options: [
        { flags: '--request <id>', text: 'not the last denial but this one' },
        { flags: '--agent <agent>', completes: 'agents', text: 'the last of this agent: a contact, an id or how it begins' },
      ],
      examples: ['x0x acl suggest', 'x0x acl suggest --agent alice >> ~/.x0x/exec-acl.toml'],
    },
    {
      name: 'mine',
      text: 'which commands this agent may run on another, as that one tells it: those of entries with discoverable = true',
      arguments: [{ flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' }],
      examples: ['x0x acl mine bob', 'x0x acl mine bob --json'],
      notes: ['Exit status 255: the agent was not reached, or would not say.'],
    },
  ],
}
