import { TRUST_LEVELS } from '../protocol/reasons.ts'
import type { ArgumentSpec, CommandSpec } from './command.ts'

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
