/** A line that is typed, and what is waited for before the next: the prompt, where nothing else is said. */
export interface Step {
  readonly line: string
  /** Questions that it asks, and what is answered. */
  readonly answers?: readonly (readonly [question: RegExp, answer: string])[]
  /** The picture is taken when this is seen, while the command runs; the last step of its pane. */
  readonly until?: RegExp
}

export type Machine = 'alice' | 'bob' | 'charlie' | 'dora'

export interface Pane {
  readonly who: Machine
  /** Above the pane, where there is more than one. */
  readonly title: string
  readonly steps: readonly Step[]
}

export interface Scene {
  readonly title: string
  readonly panes: readonly Pane[]
}

export const COLUMNS = 80

/** A fleet that alice asks, and which release is there; the last lets nobody run anything. */
export const FLEET: readonly (readonly [host: string, release: string])[] = [
  ['web1', '2026.11.42'],
  ['web2', '2026.11.42'],
  ['web3', '2026.11.42'],
  ['web4', '2026.11.41'],
  ['web5', '2026.11.42'],
  ['web6', ''],
]

/** What bob lets alice run, word for word. */
export const ALLOWED: readonly (readonly string[])[] = [
  ['df', '-h', '/'],
  ['du', '-sh', '/usr'],
  ['sleep', '<INT>'],
]

const one = (title: string, who: Machine, ...steps: Step[]): Scene => ({ title, panes: [{ who, title: who, steps }] })

/** Each is a file of docs/images; in the order in which they are played: the last show what the first left behind. */
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
