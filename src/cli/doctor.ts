import type { CommandSpec } from './command.ts'

export const DOCTOR: CommandSpec = {
  name: 'doctor',
  text: 'both ends of one relation: addresses, link, trust, pins, clocks, versions, and whether a command would be allowed there',
  usage: 'AGENT [options] [-- ARGV...]',
  arguments: [
    { flags: '<agent>', completes: 'agents', text: 'a contact, an id, or its first 6 or more characters' },
    { flags: '[argv...]' },
  ],
  carries: true,
  examples: ['x0x doctor bob', 'x0x doctor bob -- systemctl --no-pager status x0xd', 'x0x doctor bob --json'],
  notes: [
    'Each line says what it means, and what mends it. Nothing runs there; the question for its rules is journalled on both',
    'sides. Exit status 0; 1 where something fails. This installation alone: x0xd --doctor.',
  ],
}
