import { type CommandSpec, VERSION_OPTION } from './command.ts'

/** A program of its own: it holds what must be asked where no daemon does. */
export const DESK: CommandSpec = {
  name: 'x0x desk',
  summary: 'holds what a human must allow, where no x0xd runs',
  text: 'Holds the approvals of this data directory and asks the humans who watch, until it is ended. x0xd does the same by itself.',
  options: [
    { flags: '--name <name>', text: 'instance of the daemon: its data directory is ~/.x0x-NAME (X0X_NAME)' },
    { flags: '--data-dir <dir>', text: 'data directory (X0X_DATA_DIR)' },
    { flags: '--ask-timeout <seconds>', text: 'how long a human has, at most 1800', default: '120' },
    VERSION_OPTION,
  ],
  examples: ['x0x desk                        then, in another terminal: x0x approvals watch', 'x0x desk --ask-timeout 600'],
  notes: [
    '',
    'Where x0xd or another x0x desk holds them already, it says so and ends with exit status 1. When it ends, what waits is',
    'denied; what was allowed for longer stays. See docs/approvals.md.',
  ],
}
