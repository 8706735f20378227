import type { CommandSpec, OptionSpec } from './command.ts'

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
