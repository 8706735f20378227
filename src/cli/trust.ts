import type { CommandSpec } from './command.ts'

export const TRUST: CommandSpec = {
  name: 'trust',
  text: 'what the trust rules say',
  group: true,
  examples: ['x0x trust evaluate laptop 6e1f…'],
  commands: [
    {
      name: 'evaluate',
      text: 'what would be decided now of an agent on a machine, and why; nothing is asked of it',
      arguments: [
        { flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' },
        {
          flags: '<machine>',
          completes: 'machines',
          text: 'its id, the first 6 or more characters of one that is known of the agent, or the name that x0x peers shows',
        },
      ],
      examples: ['x0x trust evaluate laptop 6e1f…', 'x0x trust evaluate laptop 6e1f… --json'],
      notes: [
        'Exit status 0: accepted, its commands go on to the ACL. 3: accepted for messages alone. 4: unknown, it gets nothing.',
        '5: rejected, links to it are closed.',
      ],
    },
  ],
}
