/** A line to type. The next step waits for the prompt unless this step says otherwise. */
export interface Step {
  readonly line: string
  /** Questions of the program, and the answers to type. */
  readonly answers?: readonly (readonly [question: RegExp, answer: string])[]
  /** Takes the picture when this text appears, while the command runs. Only for the last step of a pane. */
  readonly until?: RegExp
}

export type Machine = 'alice' | 'bob' | 'charlie' | 'dora'

export interface Pane {
  readonly who: Machine
  /** Title above the pane, if there are several panes. */
  readonly title: string
  readonly steps: readonly Step[]
}

export interface Scene {
  readonly title: string
  readonly panes: readonly Pane[]
}

export const COLUMNS = 80

/** Hosts of the fleet of alice with their releases. The last host allows no command. */
export const FLEET: readonly (readonly [host: string, release: string])[] = [
  ['web1', '2026.11.42'],
  ['web2', '2026.11.42'],
  ['web3', '2026.11.42'],
  ['web4', '2026.11.41'],
  ['web5', '2026.11.42'],
  ['web6', ''],
]

/** Commands that bob allows alice. */
export const ALLOWED: readonly (readonly string[])[] = [
  ['df', '-h', '/'],
  ['du', '-sh', '/usr'],
  ['sleep', '<INT>'],
]

const one = (title: string, who: Machine, ...steps: Step[]): Scene => ({ title, panes: [{ who, title: who, steps }] })

/** Each scene is a file in docs/images. They are played in this order, and the last ones show results of the first. */
export const SCENES: Readonly<Record<string, Scene>> = {
  'terminal-readme': {
    title: 'alice runs only the commands that the ACL of bob lists; bob has all requests in his audit log',
    panes: [
      {
        who: 'alice',
        title: 'alice, the requester',
        steps: [{ line: 'x0x exec bob -- df -h /' }, { line: 'x0x exec bob -- du -sh /usr' }, { line: 'x0x exec bob -- rm -rf /' }],
      },
      { who: 'bob', title: 'bob, the target', steps: [{ line: 'x0x audit timeline' }] },
    ],
  },
  'terminal-help': one('x0x --help', 'dora', { line: 'x0x --help' }),
  'terminal-init': one('x0x init', 'dora', {
    line: 'x0x init',
    answers: [
      [/Name of this agent[^\n]*: $/, 'dora'],
      [/Only send requests[^\n]*y\/N $/, 'n'],
      [/Run as a system service[^\n]*y\/N $/, 'n'],
    ],
  }),
  'terminal-long-run': one('A command without output, and its running time', 'alice', {
    line: 'x0x exec bob -- sleep 60',
    until: /no output of bob yet, 5 s/,
  }),
  'terminal-denial': one('A command that the ACL does not list', 'alice', { line: 'x0x exec bob -- df -h /home' }, { line: 'echo $?' }),
  'terminal-fleet': one(
    'One command on six machines: equal outputs are grouped',
    'alice',
    { line: "x0x exec 'web[1-6]' --group -- cat release" },
    { line: 'echo $?' },
  ),
  'terminal-timeline': one('x0x audit timeline', 'bob', { line: 'x0x audit timeline' }),
  'terminal-peers': one('x0x peers --graph', 'alice', { line: 'x0x peers --graph' }),
  'terminal-doctor': one('x0xd --doctor', 'bob', { line: 'x0xd --doctor' }),
  'terminal-doctor-two': one('x0x doctor for two machines', 'charlie', { line: 'x0x doctor bob -- df -h /' }),
}
