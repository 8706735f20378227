import type { CommandSpec } from './command.ts'

export const PING: CommandSpec = {
  name: 'ping',
  text: 'is an agent there, how far away, by which way, of which version',
  arguments: [{ flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' }],
  options: [
    { flags: '-c, --count <count>', text: 'how many times, at most 10000', default: '4' },
    { flags: '-i, --interval <secs>', text: 'time between two of them, at least 0.1', default: '1' },
  ],
  examples: ['x0x ping laptop', 'x0x ping laptop -c 1', 'x0x ping laptop -c 100 -i 0.2 --json'],
  notes: [
    'It goes over the sealed link, and is answered to agents that are accepted there. Exit status 0 when at least one was',
    'answered; else that of the last failure: 255 where it was not reached or did not answer.',
  ],
}
