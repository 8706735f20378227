import type { CommandSpec, OptionSpec } from './command.ts'

const DIR: OptionSpec = { flags: '--dir <dir>', text: 'Use this directory (default: ~/.rexec or the recordings)' }

const TERMINALS: OptionSpec = { flags: '--terminals', text: 'Use the recorded terminals of this daemon' }

/** Accepted so that all commands about recordings can have the same options. */
const ALWAYS_TERMINALS: OptionSpec = { ...TERMINALS, text: 'Accepted without effect; only recorded terminals can be played' }

export const TRANSCRIPTS: CommandSpec = {
  name: 'transcripts',
  text: 'List and print transcripts of consoles and terminals',
  group: true,
  examples: [
    'x0x transcripts list',
    'x0x transcripts print 2026-05-21-09:42:18',
    'x0x transcripts follow',
    'x0x transcripts list --terminals',
    'x0x transcripts play',
  ],
  commands: [
    {
      name: 'list',
      text: 'List the newest transcripts',
      options: [{ flags: '-n, --count <count>', text: 'Limit the number of transcripts', default: '10' }, TERMINALS, DIR],
    },
    {
      name: 'print',
      text: 'Print a transcript; --json prints one object per command',
      arguments: [{ flags: '[name]', text: 'Transcript (default: the newest)' }],
      options: [{ flags: '-f, --follow', text: 'Continue to print new commands', conflicts: ['terminals'] }, TERMINALS, DIR],
    },
    {
      name: 'play',
      text: 'Play a recorded terminal as it was shown',
      arguments: [{ flags: '[name]', text: 'Recording (default: the newest)' }],
      options: [{ flags: '--speed <factor>', text: 'Play this many times as fast', default: '1' }, ALWAYS_TERMINALS, DIR],
    },
    {
      name: 'follow',
      text: 'Print a transcript and follow it until Ctrl-C',
      arguments: [{ flags: '[name]', text: 'Transcript (default: the newest)' }],
      options: [DIR],
    },
    {
      name: 'search',
      text: 'Search transcripts for a text',
      arguments: [
        { flags: '<text>', text: 'Text to find; not a pattern' },
        { flags: '[name]', text: 'Transcript (default: all)' },
      ],
      options: [
        { flags: '-i, --ignore-case', text: 'Ignore upper and lower case' },
        { flags: '-n, --count <count>', text: 'Limit the number of results', default: '1000' },
        DIR,
      ],
    },
    {
      name: 'export',
      text: 'Export a transcript for other programs',
      arguments: [{ flags: '<name>' }],
      options: [
        {
          flags: '--format <format>',
          text: 'Choose asciicast, jsonl or text (default: asciicast)',
        },
        TERMINALS,
        DIR,
      ],
    },
    {
      name: 'remove',
      text: 'Delete transcripts',
      arguments: [{ flags: '<names...>' }],
      options: [TERMINALS, DIR],
    },
  ],
}
