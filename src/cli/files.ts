import type { CommandSpec, ExitSpec, OptionSpec } from './command.ts'

/** `x0x cp` and `x0x ls`: files on other agents. */

const EXITS: readonly ExitSpec[] = [
  ['2', 'The command line is wrong'],
  ['255', 'The agent denied it, or x0x cannot connect'],
]

/** Any of these options makes a copy a fan-out, also with one host. */
export const COPY_FLEET_OPTIONS: readonly OptionSpec[] = [
  { flags: '--parallel <n>', text: 'Copy to n hosts at once, at most 64 (default: 8)' },
  { flags: '--canary <n>', text: 'Copy to n hosts first; continue only if all succeed' },
  { flags: '--max-failures <n>', text: 'Start no more hosts after n failures (3 or 10%)' },
  { flags: '--ledger <file>', text: 'Record the result of each host in this file', conflicts: ['retry'] },
  {
    flags: '--retry <file>',
    text: 'Copy again to the hosts that did not succeed',
    conflicts: ['recursive', 'preserve'],
  },
]

export const CP: CommandSpec = {
  name: 'cp',
  otherWords: ['copy', 'scp', 'push', 'pull'],
  text: 'Copy files to or from an agent',
  usage: '[options] SOURCE... DESTINATION',
  arguments: [{ flags: '[paths...]', text: 'HOST:/PATH on an agent, or a local path' }],
  options: [
    { flags: '-r, --recursive', text: 'Copy directories with all that is in them' },
    { flags: '-p, --preserve', text: 'Keep permission bits and times of files' },
    ...COPY_FLEET_OPTIONS,
  ],
  examples: [
    'x0x cp report.pdf bob:/srv/inbox/',
    'x0x cp bob:/var/log/syslog .',
    'x0x cp -r site bob:/srv/www',
    'x0x cp bob:/srv/dump.sql - | less',
    "x0x cp app.tar 'web[1-20]:/srv/app/' --canary 2 --ledger copy.ledger",
    'x0x cp --retry copy.ledger',
  ],
  exits: [
    ['0', 'Every file arrived whole'],
    ['1', 'A file was not copied'],
    ...EXITS,
    ['3', 'Many hosts: some denied it, were not reached, or were cancelled'],
    ['4', 'Many hosts: for some, it is not known which files arrived'],
    ['130', 'Ctrl-C stopped the copy'],
  ],
  notes: [
    'HOST is a contact name, or at least 6 characters of an agent ID. Paths on an agent are absolute. "-" is standard input or output.',
    'Several sources need a directory as destination, or a "/" at its end. Symbolic links in a directory are skipped. A file gets its name when all of it has arrived and its SHA-256 matches.',
    'To copy to many hosts, name them as for x0x exec: web[1-20], @group or role=web. A download is from one host.',
    'To resume an interrupted copy, run the same command again.',
    'The ACL of the agent must allow the files. See docs/acl.md.',
  ],
}

export const LS: CommandSpec = {
  name: 'ls',
  otherWords: ['dir', 'list'],
  text: 'List files of an agent',
  arguments: [{ flags: '<place>', text: 'HOST:/PATH' }],
  options: [
    { flags: '-l, --long', text: 'Print permission bits, size and time too' },
    { flags: '-r, --recursive', text: 'List the directories in it too' },
  ],
  examples: ['x0x ls bob:/srv', 'x0x ls -l bob:/var/log', 'x0x ls -r --json bob:/srv/www'],
  exits: [['0', 'The listing is complete'], ['1', 'The agent reported an error, or left entries out'], ...EXITS],
}
