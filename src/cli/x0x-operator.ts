import { TRUST_LEVELS } from '../protocol/reasons.ts'
import type { ArgumentSpec, CommandSpec, OptionSpec } from './command.ts'

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

const OUTGOING: OptionSpec = { flags: '--outgoing', text: 'what the running daemon asked of other agents, instead of what ran here' }

export const AUDIT: CommandSpec = {
  name: 'audit',
  text: 'the journal of every decision and run on this host, and of what this agent asks of others',
  group: true,
  examples: ['x0x audit tail --lines 50 --follow', 'x0x audit timeline', 'x0x audit verify'],
  commands: [
    {
      name: 'tail',
      text: 'its last lines',
      arguments: [{ flags: '[file]', text: 'default: the journal of the running daemon' }],
      options: [
        { flags: '-n, --lines <count>', text: 'how many', default: '20' },
        { flags: '-f, --follow', text: 'go on as lines come' },
        OUTGOING,
      ],
    },
    {
      name: 'timeline',
      text: 'draw its newest runs and refusals over time: whose, what, how long, and how each ended',
      arguments: [{ flags: '[file]', text: 'default: the journal of the running daemon' }],
      options: [{ flags: '-n, --count <count>', text: 'how many', default: '20' }],
    },
    {
      name: 'verify',
      text: "was anything altered, moved or taken out, and what is signed; prints the journal's head, to compare with a copy kept elsewhere",
      arguments: [{ flags: '[files...]', text: 'all parts of a rotated journal; default: the journal of the running daemon' }],
      options: [
        { flags: '--continued', text: 'older parts are gone: a chain may begin in its middle' },
        {
          flags: '--agent <id>',
          text: 'who must have signed it; default: the running daemon, where no file is named, else whoever has',
        },
        OUTGOING,
      ],
    },
  ],
}

const NAME: ArgumentSpec = { flags: '<name>', completes: 'contacts' }
const NAME_AND_MACHINE: readonly ArgumentSpec[] = [
  NAME,
  { flags: '<machine>', completes: 'machines', text: '64 characters, from x0x id on that machine' },
]

export const CONTACTS: CommandSpec = {
  name: 'contacts',
  text: 'who we know, how far we trust them, and on which machines',
  group: true,
  examples: [
    'x0x contacts import x0x://agent/… --as laptop',
    'x0x contacts trust laptop trusted',
    'x0x contacts pin laptop 6e1f…',
    'ssh laptop x0x card | x0x contacts import - --as laptop',
    'x0x contacts label web1 role=web',
    "x0x contacts select 'web[1-20]' role=db",
  ],
  commands: [
    { name: 'list', text: 'all of them' },
    {
      name: 'import',
      text: 'verify a card and keep it; never changes the trust or the pins of a contact we have',
      arguments: [{ flags: '<link...>', text: 'x0x://agent/…, or - for standard input; it may be wrapped' }],
      options: [
        { flags: '--as <name>', text: 'our name for it (default: agent- and the beginning of its id)' },
        { flags: '--rename', text: 'give a contact that we have the name of --as; its level, pins and labels stay', goesWith: ['as'] },
        { flags: '--trust <level>', completes: TRUST_LEVELS, text: 'trust level of a new contact (default: unknown)' },
      ],
    },
    {
      name: 'trust',
      text: 'set a trust level: blocked, unknown, known or trusted; exec needs trusted',
      arguments: [NAME, { flags: '<level>', completes: TRUST_LEVELS }],
    },
    { name: 'pin', text: 'accept this contact from this machine (and others pinned) only', arguments: NAME_AND_MACHINE },
    { name: 'unpin', text: 'remove a pin; without its last pin a trusted contact is only known', arguments: NAME_AND_MACHINE },
    {
      name: 'label',
      text: 'give it labels, by which many are chosen at once; key= takes one away',
      arguments: [NAME, { flags: '<labels...>', text: 'key=value, or key=' }],
      examples: ['x0x contacts label web1 role=web site=ber', 'x0x contacts label web1 site='],
    },
    {
      name: 'select',
      text: 'whom a command for many would be for; nothing is asked of them',
      arguments: [{ flags: '<who...>', completes: 'hosts', text: 'names, ids, node sets, @groups, key=value; ! before one leaves it out' }],
      options: [{ flags: '--fold', text: 'their names alone, as one node set' }],
      examples: ["x0x contacts select 'web[1-20]' '!web7'", 'x0x contacts select @prod role=db --fold'],
      notes: [
        'One host a line, in the order in which they are named, with its labels. A name, a label or a group that is none is an',
        'error, and so are words that mean nobody.',
      ],
    },
    { name: 'remove', text: 'forget it', arguments: [NAME] },
  ],
}
