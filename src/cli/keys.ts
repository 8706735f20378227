import type { CommandSpec } from './command.ts'

export const TOKEN_NAMES = ['api-token', 'metrics-token', 'operator-key'] as const

export const KEYS: CommandSpec = {
  name: 'keys',
  text: 'keys and tokens of this daemon, made anew',
  group: true,
  examples: ['x0x keys rotate --yes', 'x0x keys rotate-token', 'x0x keys rotate-token operator-key'],
  commands: [
    {
      name: 'rotate',
      text: 'give this agent a new key, which the old one names to contacts; while no daemon runs, as its user',
      options: [{ flags: '--yes', text: 'yes: ACLs that list the old one are for their operators to change' }],
    },
    {
      name: 'rotate-token',
      text: 'make a secret of local callers anew, without a restart; the one before opens nothing more',
      arguments: [{ flags: '[which]', completes: TOKEN_NAMES, text: 'api-token, metrics-token or operator-key (default: api-token)' }],
    },
  ],
  notes: ['docs/keys.md: which key is for what, backups, and what to do when one got out.'],
}
