import type { ArgumentSpec, CommandSpec, OptionSpec } from './command.ts'

/** Options of `x0x exec` that are only in the table of all commands, because a plain exec has none of them. */
export const DETACH_OPTIONS: readonly OptionSpec[] = [
  {
    flags: '--detach',
    conflicts: 'timeout stdin-file cancel raw parallel canary max-failures deadline group diff ledger retry retry-unknown'.split(' '),
    text: 'Start it, print the run ID, and do not wait',
  },
  { flags: '--lifetime <duration>', goesWith: ['detach'], text: 'Stop the run after this time (90s, 15m, 8h)' },
  { flags: '--keep <size>', goesWith: ['detach'], text: 'Keep at most this much output (64K, 8M)' },
]

const ID: ArgumentSpec = { flags: '<id>', completes: 'detached', text: 'Run ID from x0x runs, or its beginning' }
const IDS: ArgumentSpec = { ...ID, flags: '[ids...]' }
const OF_SESSION: OptionSpec = { flags: '--session <name>', text: 'Select the runs with this label' }

export const ATTACH: CommandSpec = {
  name: 'attach',
  text: 'Show the output of a detached run',
  arguments: [ID],
  options: [
    {
      flags: '--from <bytes>',
      text: 'Skip this many bytes of stdout and stderr together',
      default: '0',
    },
    { flags: '--no-follow', text: 'Show the output so far, and exit' },
    { flags: '--raw', text: 'Write control characters to the terminal unchanged' },
  ],
  examples: ['x0x attach 0198f3c2-5d1e-7000-8000-4b1f6a2c9d10', 'x0x attach 0198f3c2 --from 65536'],
  exits: [['0-255', 'As x0x exec for one host']],
  notes: ['After Ctrl-C the run continues. x0x attach prints the --from value to continue with; x0x runs cancel stops the run.'],
}

export const RUNS: CommandSpec = {
  name: 'runs',
  otherWords: ['run', 'jobs'],
  text: 'List and manage detached runs',
  options: [
    { flags: '--refresh', text: 'Ask each target for results that are not known yet' },
    { flags: '--session <name>', text: 'List only runs with this label' },
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
      text: 'Wait until runs have ended',
      arguments: [IDS],
      options: [OF_SESSION, { flags: '--timeout <secs>', text: 'Wait at most this many seconds' }],
      examples: ['x0x runs wait 0198f3c2 --timeout 600', 'x0x runs wait --session detached-4b1f6a2c9d10'],
      exits: [
        ['0-255', 'One ID: as x0x exec; 255 also if it has not ended, or is unknown'],
        ['0', 'Several IDs, or --session: all ended with 0'],
        ['1', 'Several: one ended with another status'],
        ['3', 'Several: one was denied'],
        ['4', 'Several: one is unknown, or has not ended'],
      ],
      notes: ['For several runs, the highest status is returned. The command waits for the others if one ID is unknown.'],
    },
    { name: 'cancel', text: 'Stop runs', arguments: [IDS], options: [OF_SESSION] },
    {
      name: 'forget',
      otherWords: ['rm', 'delete', 'remove'],
      text: 'Delete runs and their output',
      arguments: [IDS],
      options: [OF_SESSION, { flags: '--here', text: 'Delete only the record on this machine' }],
      notes: ['A run that has not ended needs --here. Use --here also if its target is gone.'],
    },
  ],
}
