import type { CommandSpec, ExitSpec, OptionSpec } from './command.ts'

const ID = { flags: '<id>', text: 'Approval request, or at least 6 characters of it' }
const YES: OptionSpec = { flags: '--yes', text: 'Do not ask for confirmation' }
const PERMIT: OptionSpec = {
  flags: '--permit <sha256>',
  text: 'Decide only if the permit begins with this',
}
const LABEL = { flags: '<agent>', text: 'Name of the AI agent' }
const PATTERN = { flags: '<pattern>', text: 'Program path; * stays in a directory, ** does not' }
const EXITS: readonly ExitSpec[] = [
  ['0', 'Decided'],
  ['1', 'Not found, changed, or already decided'],
  ['255', 'No approval service is running'],
]

export const APPROVALS: CommandSpec = {
  name: 'approvals',
  text: 'Decide about approval requests, and manage grants',
  group: true,
  examples: [
    'x0x approvals watch --bell                      decide about requests as they arrive',
    'x0x approvals approve q_3vF9xk                  allow one request, once',
    'x0x approvals allow-always q_3vF9xk --for 8h    allow the same command for 8 hours',
    'x0x approvals revoke g_7mQ2aa',
  ],
  notes: ['The approval service is part of x0xd. Without x0xd, use x0x desk. A request without an answer is denied.'],
  commands: [
    { name: 'pending', otherWords: ['ls', 'show'], text: 'List open approval requests, oldest first' },
    {
      name: 'approve',
      otherWords: ['allow', 'accept'],
      text: 'Allow a request once',
      arguments: [ID],
      options: [PERMIT, YES],
      exits: EXITS,
    },
    { name: 'deny', otherWords: ['refuse', 'reject'], text: 'Deny a request', arguments: [ID], options: [PERMIT, YES], exits: EXITS },
    {
      name: 'allow-always',
      text: 'Allow a request and later ones like it',
      arguments: [ID],
      options: [
        { flags: '--for <duration>', text: 'Limit the grant to this time (90s, 8h, 30d)' },
        { flags: '--uses <count>', text: 'Limit the grant to this number of uses' },
        PERMIT,
        YES,
      ],
      exits: EXITS,
      notes: ['The grant covers exactly this command. Commands that always need approval still ask.'],
    },
    { name: 'list', text: 'List grants and allowed patterns' },
    { name: 'revoke', text: 'Revoke a grant', arguments: [{ flags: '<grant>', text: 'Grant ID, or at least its first 6 characters' }] },
    {
      name: 'allowlist',
      text: 'Allow programs of an AI agent without approval',
      group: true,
      examples: ['x0x approvals allowlist add reviewer /usr/bin/df', "x0x approvals allowlist add reviewer '~/bin/lint-*' --opaque"],
      commands: [
        {
          name: 'add',
          text: 'Allow programs that match a pattern, with any arguments',
          arguments: [LABEL, PATTERN],
          options: [{ flags: '--opaque', text: 'Accept that these programs can run any other program' }],
        },
        { name: 'remove', text: 'Remove a pattern', arguments: [LABEL, PATTERN] },
      ],
    },
    {
      name: 'history',
      text: 'Show past approval requests and decisions, newest last',
      options: [{ flags: '-n, --lines <count>', text: 'Limit the number of requests', default: '20' }],
    },
    {
      name: 'watch',
      text: 'Show approval requests as they arrive, and decide',
      options: [
        { flags: '--bell', text: 'Ring the terminal bell for each' },
        { flags: '--notify', text: 'Send a desktop notification for each' },
      ],
      examples: ['x0x approvals watch --notify', 'x0x approvals watch --json | jq .'],
      notes: ['Keys: a allows once, A allows always, d denies, s skips, q quits. Without a terminal, it only prints requests.'],
    },
  ],
}

const AGENT: OptionSpec = { flags: '--agent <label>', text: 'Select the AI agent by name' }
const SESSION: OptionSpec = { flags: '--session <id>', text: 'Select one session of the agent' }
const WHOSE = [AGENT, SESSION]

export const EXEC_MODE: CommandSpec = {
  name: 'exec-mode',
  text: 'Set where commands run and when approval is needed',
  usage: "[command] | '/exec …' | '/elevated on|off|ask|full'",
  arguments: [{ flags: '[words...]', text: 'A /exec or /elevated line' }],
  options: WHOSE,
  examples: [
    'x0x exec-mode show --agent reviewer',
    'x0x exec-mode set host=gateway security=allowlist ask=always --agent reviewer',
    'x0x exec-mode /elevated ask --agent reviewer',
    'x0x exec-mode list                             list all sessions and agents',
    'x0x exec-mode save --agent reviewer            keep security and ask for later sessions',
    'x0x exec-mode off --agent reviewer             return to the configuration',
  ],
  commands: [
    { name: 'list', text: 'List settings of sessions and saved modes of agents' },
    { name: 'show', text: 'Show the settings and their effect', options: WHOSE },
    {
      name: 'set',
      text: 'Set modes until the approval service ends',
      arguments: [{ flags: '<settings...>', text: 'KEY=VALUE words' }],
      options: WHOSE,
      notes: [
        'Settings: host=sandbox|gateway|node, security=deny|allowlist|full, ask=off|on-miss|always, node=NODE. They can only be stricter than the configuration.',
      ],
    },
    {
      name: 'off',
      text: 'Remove the settings',
      options: [...WHOSE, { flags: '--saved', text: 'Also remove the saved modes of the agent' }],
    },
    { name: 'save', text: 'Save security and ask for later sessions of the agent', options: WHOSE },
  ],
}
