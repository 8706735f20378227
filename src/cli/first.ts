import type { CommandSpec } from './command.ts'

const INIT: CommandSpec = {
  name: 'init',
  text: 'make what a daemon needs: directory, keys, configuration, and an ACL that allows nothing; what is there stays',
  options: [
    { flags: '--as <name>', text: 'what this agent calls itself (default: the name of this host)' },
    { flags: '--reachable', text: 'others may connect (default)', conflicts: ['only-asks'] },
    { flags: '--only-asks', text: 'it asks others, and listens nowhere' },
    { flags: '--user', text: 'it will run as this user (default)', conflicts: ['service'] },
    { flags: '--service', text: 'it will run as a service of the system' },
    { flags: '--dry-run', text: 'only say what would be made' },
  ],
  examples: ['x0x init', 'x0x init --as laptop --only-asks', 'x0x init --dry-run --json'],
  notes: ['At a terminal, and where there is no config.toml yet, it asks for what no option says.'],
}

const INVITE: CommandSpec = {
  name: 'invite',
  text: 'know, trust and pin another machine, and be known there: one line each way, and a code that is read aloud',
  usage: '[options] NAME [-- ARGV...]',
  arguments: [{ flags: '<name>', text: 'what we call it' }, { flags: '[argv...]' }],
  carries: true,
  examples: ['x0x invite alice', 'x0x invite alice -- df -h >> ~/.x0x/exec-acl.toml'],
  notes: [
    'With a command behind --, its entry of the ACL is printed to standard output; what is said and asked is on standard',
    'error. Nothing is changed before the codes fit, nor where Ctrl-C ends it. An invitation is good for an hour and once.',
  ],
}

const JOIN: CommandSpec = {
  name: 'join',
  text: 'the other side of x0x invite',
  arguments: [{ flags: '<line...>', text: 'x0x://invite/…, that x0x invite printed there; it may be wrapped' }],
  options: [{ flags: '--as <name>', text: 'what we call it (default: what it calls itself)' }],
  examples: ['x0x join x0x://invite/… --as bob'],
}

/** What two machines need before the first command. */
export const FIRST_COMMANDS: readonly CommandSpec[] = [INIT, INVITE, JOIN]
