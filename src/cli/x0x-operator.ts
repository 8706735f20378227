import { TRUST_LEVELS } from '../protocol/reasons.ts'
import type { ArgumentSpec, CommandSpec, OptionSpec } from './command.ts'

export const ACL: CommandSpec = {
  name: 'acl',
  text: 'Check, explain, compare and sign ACL files',
  group: true,
  examples: ['x0x acl check /etc/x0x/exec-acl.toml', 'x0x acl mine bob'],
  commands: [
    {
      name: 'check',
      text: 'Check an ACL file for errors and risks',
      arguments: [{ flags: '[file]', text: 'ACL file (default: that of the running daemon)' }],
      options: [{ flags: '--signer <id>', text: 'Require a signature of this agent (repeatable)' }],
      examples: ['x0x acl check', 'x0x acl check web.acl --signer 3f2a…'],
      exits: [['2', 'x0xd cannot use the file, or the required signature is missing or wrong']],
      notes: [
        'If the file is signed, the signature must be valid. It prints the version and the signer.',
        'For the ACL of this daemon, acl_signers of its configuration applies. Name --signer for files of other hosts.',
      ],
    },
    {
      name: 'sign',
      text: 'Sign an ACL for hosts that accept this agent',
      arguments: [{ flags: '<file>', text: 'ACL, or a signed ACL whose text you have changed' }],
      options: [
        { flags: '--version <n>', text: 'Version of this ACL (default: UTC time as YYYYMMDDhhmmss)' },
        { flags: '--out <file>', text: 'Write the signed ACL to this file' },
      ],
      examples: ['x0x acl sign web.toml --out web.acl', 'x0x acl sign web.toml --version 7 > web.acl', 'x0x acl check web.acl'],
      exits: [
        ['1', 'The daemon does not run, or you cannot read operator.key'],
        ['2', 'The file is not valid, or the version is not above that of the file of --out'],
      ],
      notes: [
        'The key is that of the agent of this daemon. On each host, acl_signers in config.toml names that agent. See docs/fleet-acls.md.',
        'A host refuses a version below the last one that it accepted.',
      ],
    },
    {
      name: 'explain',
      text: 'Explain whether an ACL allows a command or a file',
      usage: '[FILE] (--last [--agent AGENT] | --agent ID --machine ID (--file PATH [--write] | -- COMMAND [ARGS...]))',
      arguments: [{ flags: '[file]', text: 'ACL file (default: that of the running daemon)' }, { flags: '[argv...]' }],
      carries: true,
      options: [
        {
          flags: '--last',
          text: 'Explain the last denial in the audit log',
          conflicts: ['machine', 'detach', 'terminal', 'file'],
        },
        { flags: '--agent <id>', text: 'Agent that requests the command' },
        { flags: '--machine <id>', text: 'Machine of that agent' },
        { flags: '--detach', text: 'Check a detached run', conflicts: ['file'] },
        { flags: '--terminal', text: 'Check a run on a terminal', conflicts: ['detach', 'file'] },
        { flags: '--file <path>', text: 'Explain whether the agent may read this file' },
        { flags: '--write', text: 'Explain whether it may write the file', goesWith: ['file'] },
      ],
      exits: [
        ['0', 'Allowed'],
        ['1', 'Denied, or the file has changed and is not in force'],
        ['2', 'The file is not valid'],
      ],
      examples: [
        'x0x acl explain --last',
        'x0x acl explain --agent 3f2a… --machine 6e1f… -- echo 42',
        'x0x acl explain --agent 3f2a… --machine 6e1f… --file /srv/app/app.tar --write',
        'x0x acl explain /etc/x0x/exec-acl.toml --agent 3f2a… --machine 6e1f… -- echo 42',
      ],
    },
    {
      name: 'diff',
      text: 'Compare what two ACL files allow',
      arguments: [
        {
          flags: '[old]',
          text: 'Old file (default: the loaded ACL of the daemon)',
        },
        { flags: '[new]', text: 'New file (default: the ACL file of the daemon)' },
      ],
      examples: ['x0x acl diff', 'x0x acl diff /etc/x0x/exec-acl.toml', 'x0x acl diff exec-acl.toml.old exec-acl.toml'],
      exits: [
        ['0', 'They allow the same'],
        ['3', 'The new file allows less; a reload (SIGHUP) is enough'],
        ['4', 'The new file may allow more; restart the daemon'],
        ['2', 'A file is not valid'],
      ],
      notes: ['A single file is the new one.'],
    },
    {
      name: 'suggest',
      text: 'Print the ACL entry that allows the last denied command',
      options: [
        { flags: '--request <id>', text: 'Use the denial of this request' },
        { flags: '--agent <agent>', completes: 'agents', text: 'Use the last denial of this agent' },
      ],
      examples: ['x0x acl suggest', 'x0x acl suggest --agent alice >> ~/.x0x/exec-acl.toml'],
      notes: ['Add the entry to the ACL, then restart the daemon.'],
    },
    {
      name: 'mine',
      text: 'List commands that you may run on an agent',
      arguments: [{ flags: '<agent>', completes: 'agents', text: 'Contact name, or at least 6 characters of an ID' }],
      examples: ['x0x acl mine bob', 'x0x acl mine bob --json'],
      exits: [['255', 'The agent was not reached, or did not answer']],
      notes: ['The agent lists ACL entries with discoverable = true.'],
    },
  ],
}

const OUTGOING: OptionSpec = { flags: '--outgoing', text: 'Use the request log instead of the audit log' }

export const AUDIT: CommandSpec = {
  name: 'audit',
  otherWords: ['log', 'logs', 'history'],
  text: 'Show and verify the audit log',
  group: true,
  examples: ['x0x audit tail --lines 50 --follow', 'x0x audit timeline', 'x0x audit verify'],
  commands: [
    {
      name: 'tail',
      text: 'Print the last lines',
      arguments: [{ flags: '[file]', text: 'Audit log (default: that of the running daemon)' }],
      options: [
        { flags: '-n, --lines <count>', text: 'Limit the number of lines', default: '20' },
        { flags: '-f, --follow', text: 'Continue to print new lines' },
        OUTGOING,
      ],
    },
    {
      name: 'timeline',
      text: 'Draw recent runs and denials over time',
      arguments: [{ flags: '[file]', text: 'Audit log (default: that of the running daemon)' }],
      options: [{ flags: '-n, --count <count>', text: 'Limit the number of runs', default: '20' }],
    },
    {
      name: 'verify',
      text: 'Verify chain and signatures of an audit log',
      arguments: [{ flags: '[files...]', text: 'All parts of a rotated log (default: running daemon)' }],
      options: [
        { flags: '--continued', text: 'Accept that older parts are missing' },
        {
          flags: '--agent <id>',
          text: 'Require the signature of this agent',
        },
        OUTGOING,
      ],
      notes: ['It prints the head of the chain. Compare it with a copy that you keep on another machine.'],
    },
  ],
}

const NAME: ArgumentSpec = { flags: '<name>', completes: 'contacts' }
const NAME_AND_MACHINE: readonly ArgumentSpec[] = [
  NAME,
  { flags: '<machine>', completes: 'machines', text: 'Machine ID; x0x id on that machine prints it' },
]

export const CONTACTS: CommandSpec = {
  name: 'contacts',
  text: 'Manage contacts, their trust, pins and labels',
  group: true,
  examples: [
    'x0x contacts import x0x://agent/… --as laptop',
    'x0x contacts trust laptop trusted',
    'x0x contacts pin laptop 6e1f…',
    'ssh laptop x0x card | x0x contacts import - --as laptop',
    'x0x contacts label web1 role=web',
    "x0x contacts select 'web[1-20]' role=db",
  ],
  commands: [
    { name: 'list', otherWords: ['ls', 'show'], text: 'List all contacts' },
    {
      name: 'import',
      text: 'Verify and save a card',
      arguments: [{ flags: '<link...>', text: 'Card (x0x://agent/…); - reads standard input' }],
      options: [
        { flags: '--as <name>', text: 'Name the contact (default: agent-ID)' },
        { flags: '--rename', text: 'Rename an existing contact to the name of --as', goesWith: ['as'] },
        { flags: '--trust <level>', completes: TRUST_LEVELS, text: 'Set the trust of a new contact (default: unknown)' },
      ],
      notes: ['Trust and pins of an existing contact stay unchanged. Line breaks in the card are ignored.'],
    },
    {
      name: 'trust',
      text: 'Set a trust level: blocked, unknown, known or trusted',
      arguments: [NAME, { flags: '<level>', completes: TRUST_LEVELS }],
    },
    { name: 'pin', text: 'Accept this contact only from pinned machines', arguments: NAME_AND_MACHINE },
    { name: 'unpin', text: 'Remove a pin; the last one lowers trust to known', arguments: NAME_AND_MACHINE },
    {
      name: 'label',
      text: 'Add or remove labels of a contact',
      arguments: [NAME, { flags: '<labels...>', text: 'KEY=VALUE to add, KEY= to remove' }],
      examples: ['x0x contacts label web1 role=web site=ber', 'x0x contacts label web1 site='],
    },
    {
      name: 'select',
      text: 'List the hosts of a fan-out, without asking them',
      arguments: [{ flags: '<hosts...>', completes: 'hosts', text: 'Names, IDs, web[1-20], @group or KEY=VALUE; ! excludes' }],
      options: [{ flags: '--fold', text: 'Print the names as one node set' }],
      examples: ["x0x contacts select 'web[1-20]' '!web7'", 'x0x contacts select @prod role=db --fold'],
      notes: ['It prints one host per line, with its labels.'],
    },
    { name: 'remove', otherWords: ['rm', 'delete'], text: 'Delete a contact', arguments: [NAME] },
  ],
}

export const ENROL: CommandSpec = {
  name: 'enrol',
  text: 'Create, list and revoke keys for new hosts',
  group: true,
  examples: [
    "x0x enrol create --uses 50 --for 2h --name 'web[1-50]' --label role=web --allow web.toml",
    'x0x enrol list',
    'x0x enrol revoke 9c41',
  ],
  commands: [
    {
      name: 'create',
      text: 'Create an enrolment key and print its token',
      options: [
        { flags: '--uses <count>', text: 'Admit this many hosts, at most 1000', default: '1' },
        { flags: '--for <time>', text: 'Expire after this time, such as 30m, 2h or 7d', default: '1h' },
        { flags: '--name <names>', text: 'Give hosts names of this node set' },
        { flags: '--label <label>', text: 'Label the hosts, KEY=VALUE (repeatable)' },
        { flags: '--allow <file>', text: 'Give hosts these [[exec.allow]] entries for you' },
        { flags: '--address <multiaddr>', text: 'Address of this daemon for hosts (repeatable)' },
        { flags: '--out <file>', text: 'Write the token to a new private file' },
      ],
      examples: [
        "x0x enrol create --uses 50 --for 2h --name 'web[1-50]' --label role=web --allow web.toml --out web.token",
        'x0xd --init --enrol x0xe1.…        on each host',
      ],
      notes: [
        'Anyone who has the token can become your contact, until it expires, is used up or is revoked. Keep it like a password.',
        'To choose a daemon by --name, write it before enrol: x0x --name lab enrol create.',
        'The file of --allow has no agent_id and machine_id: x0x adds those of your daemon. Each host shows the entries and adds them to a new ACL only. See docs/enrol.md.',
      ],
    },
    { name: 'list', text: 'List enrolment keys, uses and hosts' },
    {
      name: 'revoke',
      text: 'Revoke an enrolment key; hosts that used it stay',
      arguments: [{ flags: '<id>', text: 'ID of the key, or its unique beginning' }],
      examples: ['x0x enrol revoke 9c41'],
    },
  ],
}
