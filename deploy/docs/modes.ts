import {
  ASK_FALLBACKS,
  ASKS,
  type Ask,
  type AskFallback,
  HOSTS,
  type Host,
  SECURITIES,
  type Security,
} from '../../src/protocol/desk/approval-request.ts'
import { grantBounds } from '../../src/protocol/limits/approvals.ts'
import { code, table } from './table.ts'

const HOST: Readonly<Record<Host, string>> = {
  sandbox: 'on this machine, in a [sandbox](#the-sandbox)',
  gateway: 'on this machine, without a sandbox. Needs the approval service for each command',
  node: 'on an agent of the mesh, under its ACL. Needs `security.allow_targets` and `x0xd`',
}

const SECURITY: Readonly<Record<Security, string>> = {
  deny: 'runs no command',
  allowlist: 'runs commands that the approval store lists or granted',
  full: 'runs all commands that the configuration allows',
}

const ASK: Readonly<Record<Ask, string>> = {
  always: 'a person allows each command',
  'on-miss': 'a person decides about commands that `security` does not allow',
  off: 'commands that `security` does not allow are denied',
}

const FALLBACK: Readonly<Record<AskFallback, string>> = {
  deny: 'if no approval client is connected, the command is denied',
  allowlist: 'then commands that the store lists or granted run',
  full: 'then all commands that the configuration allows run',
}

const rowsOf = <Value extends string>(setting: string, values: readonly Value[], texts: Readonly<Record<Value, string>>): string[][] =>
  values.map((value, at) => [at === 0 ? code(setting) : '', code(value), texts[value]])

const DAY_MS = 86_400_000
const timeText = (ms: number): string => (ms > DAY_MS ? `${ms / DAY_MS} days` : `${ms / 3_600_000} hours`)

export const modeSections = {
  'exec-modes': () =>
    table(
      ['Setting', 'Value', 'Commands run, or are decided, like this'],
      [
        ...rowsOf('host', HOSTS, HOST),
        ...rowsOf('security', SECURITIES, SECURITY),
        ...rowsOf('ask', ASKS, ASK),
        ...rowsOf('ask_fallback', ASK_FALLBACKS, FALLBACK),
      ],
    ),
  'grant-durations': () => {
    const [transparent, opaque] = [grantBounds(null), grantBounds('opaque')]
    return table(
      ['', 'Transparent program', 'Opaque program'],
      [
        ['default', timeText(transparent.usual), timeText(opaque.usual)],
        ['longest', timeText(transparent.most), timeText(opaque.most)],
      ],
    )
  },
}
