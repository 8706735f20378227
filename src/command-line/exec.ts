import type { CommandSpec } from './command.ts'
import { PLAIN_EXEC } from './plain-exec.ts'

export const EXEC: CommandSpec = {
  ...PLAIN_EXEC,
  summary: 'run a command on an agent',
  text: 'Runs a command on another agent and streams its output. AGENT: a contact, an id, or its first 6 or more characters.',
  usage: 'AGENT [options] -- ARGV...',
  examples: [
    'x0x exec bob -- echo 42',
    'x0x exec bob --timeout 30 -- journalctl -u x0xd -n 100',
    'x0x exec bob --stdin-file payload.bin -- sha256sum',
    'tar c . | x0x exec bob --stdin-file - -- sha256sum',
    'x0x exec bob --json -- x0x diagnostics exec',
  ],
  notes: ['Ctrl-C cancels the remote command and waits for its end; a second Ctrl-C does not wait.'],
  commands: [
    {
      name: 'sessions',
      text: 'commands that this daemon asked for and that have not ended',
      options: [{ flags: '--incoming', text: 'those that other agents asked for and that run here; for operators of this host' }],
      examples: ['x0x exec sessions', 'x0x exec sessions --incoming --json'],
    },
    {
      name: 'cancel',
      text: 'end one of them: one of ours, else one that runs here for another agent, which is told that an operator ended it',
      arguments: [{ flags: '<id>', completes: 'runs', text: 'from x0x exec sessions or x0x exec sessions --incoming' }],
      options: [
        { flags: '--incoming', text: 'only one that runs here for another agent' },
        { flags: '--agent <id>', text: 'whose it is, where two agents chose the same id: all 64 characters', goesWith: ['incoming'] },
      ],
      examples: ['x0x exec cancel 01890a5d-ac96-774b-bcce-b302099a8057'],
      notes: ['Exit status: 0 when it was asked to end; 1 where no such command runs, or for want of the proof of an operator.'],
    },
  ],
}
