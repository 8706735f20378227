import type { CommandSpec, OptionSpec } from './command.ts'

const ID = { flags: '<id>', text: 'of a question, or its first 6 or more characters' }
const YES: OptionSpec = { flags: '--yes', text: 'do not ask again at a terminal' }
const PERMIT: OptionSpec = {
  flags: '--permit <sha256>',
  text: 'only if this is its permit, or how its permit begins: what was read is what is decided',
}
const LABEL = { flags: '<agent>', text: 'the name that it goes by' }
const PATTERN = { flags: '<pattern>', text: 'over the resolved path of a program: * and ? within one directory, ** over several' }
const NO_DESK = 'Exit status: 0; 1 where it was decided otherwise, is gone or has changed; 255 where no desk answers.'

export const APPROVALS: CommandSpec = {
  name: 'approvals',
  text: 'questions of programs that must not run before a human says so, and what was allowed for longer',
  group: true,
  examples: [
    'x0x approvals watch --bell                      decide as they come',
    'x0x approvals approve q_3vF9xk                  once, after it was shown whole',
    'x0x approvals allow-always q_3vF9xk --for 8h    exactly this command, for a working day',
    'x0x approvals revoke g_7mQ2aa',
  ],
  notes: ['They are held by x0xd, or by x0x desk where no daemon runs. No answer is a denial.'],
  commands: [
    { name: 'pending', text: 'what waits for a decision, the oldest first, each whole' },
    { name: 'approve', text: 'allow it once, exactly as it is shown', arguments: [ID], options: [PERMIT, YES], notes: [NO_DESK] },
    { name: 'deny', text: 'refuse it', arguments: [ID], options: [PERMIT, YES], notes: [NO_DESK] },
    {
      name: 'allow-always',
      text: 'allow it now and whenever exactly the same is asked again, until it is revoked; what always asks goes on asking',
      arguments: [ID],
      options: [
        { flags: '--for <duration>', text: 'for so long: 90s, 15m, 8h, 30d' },
        { flags: '--uses <count>', text: 'so many times' },
        PERMIT,
        YES,
      ],
      notes: [NO_DESK],
    },
    { name: 'list', text: 'what is allowed for longer: exact commands, and patterns of agents' },
    { name: 'revoke', text: 'take one of them back', arguments: [{ flags: '<grant>', text: 'its id, or its first 6 or more characters' }] },
    {
      name: 'allowlist',
      text: 'programs that an agent may run without a question, whatever their arguments',
      group: true,
      examples: ['x0x approvals allowlist add reviewer /usr/bin/df', "x0x approvals allowlist add reviewer '~/bin/lint-*' --opaque"],
      commands: [
        {
          name: 'add',
          text: 'let an agent run what a pattern fits',
          arguments: [LABEL, PATTERN],
          options: [{ flags: '--opaque', text: 'Accept that these programs may run others, so the agent can run anything' }],
        },
        { name: 'remove', text: 'take a pattern back', arguments: [LABEL, PATTERN] },
      ],
    },
    {
      name: 'history',
      text: 'what was asked and how it was decided, the newest last',
      options: [{ flags: '-n, --lines <count>', text: 'how many', default: '20' }],
    },
    {
      name: 'watch',
      text: 'show each question as it comes, and decide by a key: a once, A always, d deny, s later, q end; without a terminal, lines',
      options: [
        { flags: '--bell', text: 'ring the bell of the terminal for each' },
        { flags: '--notify', text: 'tell the desktop of each by notify-send, or else the terminal' },
      ],
      examples: ['x0x approvals watch --notify', 'x0x approvals watch --json | jq .'],
    },
  ],
}

const AGENT: OptionSpec = { flags: '--agent <label>', text: 'of this agent, by the name that it goes by' }
const SESSION: OptionSpec = { flags: '--session <id>', text: 'of this session of it only' }
const WHOSE = [AGENT, SESSION]

export const EXEC_MODE: CommandSpec = {
  name: 'exec-mode',
  text: 'where commands of agents run, how far they may go, and when a human is asked; nothing here allows more than the configuration',
  usage: "[command] | '/exec …' | '/elevated on|off|ask|full'",
  arguments: [{ flags: '[words...]', text: '/exec or /elevated and what stands behind it' }],
  options: WHOSE,
  examples: [
    'x0x exec-mode show --agent reviewer',
    'x0x exec-mode set host=gateway security=allowlist ask=always --agent reviewer',
    'x0x exec-mode /elevated ask --agent reviewer',
    'x0x exec-mode list                             of all sessions and agents',
    'x0x exec-mode save --agent reviewer            security and ask, for later sessions too',
    'x0x exec-mode off --agent reviewer             as it was before',
  ],
  commands: [
    { name: 'list', text: 'List what is set for sessions and saved for agents' },
    { name: 'show', text: 'what is set, and what that comes to', options: WHOSE },
    {
      name: 'set',
      text: 'set some until the desk ends: host=sandbox|gateway|node security=deny|allowlist|full ask=off|on-miss|always node=NODE',
      arguments: [{ flags: '<settings...>' }],
      options: WHOSE,
    },
    {
      name: 'off',
      text: 'take back what was set',
      options: [...WHOSE, { flags: '--saved', text: 'Also remove security and ask from the row of the agent in the approval store' }],
    },
    { name: 'save', text: 'Write security and ask of the session into the row of the agent in the approval store', options: WHOSE },
  ],
}
