import type { ArgumentSpec, CommandSpec, OptionSpec } from './command.ts'

/** Options of `x0x exec` that are only in the table of all commands, because a plain exec has none of them. */
export const DETACH_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--detach',
    conflicts: 'timeout stdin-file cancel raw parallel canary max-failures deadline group diff ledger retry retry-unknown'.split(' '),
    text: 'start it, print its id (of many hosts each with its host, and one session for all) and go: it runs on, where the ACL there says detach = true',
  },
  { flags: '--lifetime <duration>', goesWith: ['detach'], text: 'end it after so long, such as 90s, 15m, 8h; clamped to the cap there' },
  { flags: '--keep <size>', goesWith: ['detach'], text: 'keep so much of its output, such as 64K or 8M; clamped to the cap there' },
]

const ID: ArgumentSpec = { flags: '<id>', completes: 'detached', text: 'from x0x runs; its beginning is enough where only one begins so' }
const IDS: ArgumentSpec = { ...ID, flags: '[ids...]' }
const OF_SESSION: OptionSpec = { flags: '--session <name>', text: 'in place of ids: all that were asked for with this session' }

export const ATTACH: CommandSpec = {
  name: 'attach',
  summary: 'show the output of a detached command',
  text: 'Shows what a detached command has written and what it writes until it is over; its exit status is that of x0x exec.',
  arguments: [ID],
  options: [
    {
      flags: '--from <bytes>',
      text: 'where to begin: bytes of stdout and stderr together, as x0x attach said when it was left',
      default: '0',
    },
    { flags: '--no-follow', text: 'only what there is now' },
    { flags: '--raw', text: 'control characters to the terminal as they come' },
  ],
  examples: ['x0x attach 0198f3c2-5d1e-7000-8000-4b1f6a2c9d10', 'x0x attach 0198f3c2 --from 65536'],
  notes: ['Ctrl-C leaves it and says from which byte to go on; the command goes on: x0x runs cancel ends it.'],
}

export const RUNS: CommandSpec = {
  name: 'runs',
  text: 'detached commands that this daemon asked for: waiting, running, ended with which status, lost, expired, unknown',
  options: [
    { flags: '--refresh', text: 'ask the host of each whose end is not known' },
    { flags: '--session <name>', text: 'only those that were asked for with this session' },
  ],
  examples: [
    'x0x exec bob --detach --lifetime 2h -- make all',
    'x0x runs --refresh',
    'x0x attach 0198f3c2',
    'x0x runs wait 0198f3c2 --timeout 600',
    'x0x runs wait --session detached-4b1f6a2c9d10',
  ],
  commands: [
    {
      name: 'wait',
      text: 'wait until they are over; of one the exit status of x0x exec',
      arguments: [IDS],
      options: [OF_SESSION, { flags: '--timeout <secs>', text: 'not longer than this' }],
      examples: ['x0x runs wait 0198f3c2 --timeout 600', 'x0x runs wait --session detached-4b1f6a2c9d10'],
      notes: [
        'Exit status of one: that of x0x exec, so 255 when it has not ended in time or is not',
        'known here, as any other may be that of its program. Of several, or of a session: 0',
        'when all ended with 0; 1 when one ended otherwise; 3 when one was denied; 4 when of',
        'one nobody knows, or it has not ended in time. The highest holds. Of several ids, one',
        'that is not known here is named and counts as 4, and the others are waited for.',
      ],
    },
    { name: 'cancel', text: 'ask them to end; of one that is over it says how', arguments: [IDS], options: [OF_SESSION] },
    {
      name: 'forget',
      text: 'let go of them, here and there: of one that goes on only with --here',
      arguments: [IDS],
      options: [OF_SESSION, { flags: '--here', text: 'here alone: its host, which may be gone for good, is not asked' }],
    },
  ],
}
