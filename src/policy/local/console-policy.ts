import { statSync } from 'node:fs'
import type { Environment } from '../../base/environment.ts'
import { MAX_CONSOLE_CONNECTIONS, MAX_CONSOLE_RUNS } from '../../protocol/console.ts'
import { DEFAULT_LOCAL_LIMITS, type LocalPolicy } from './policy.ts'

/** Of the host's own: they say where it stands, and not where its commands do. */
const NOT_INHERITED = ['PWD', 'OLDPWD']

/**
 * What the callers of a console may do, which is what its user may: any program in any directory, on a terminal, with the environment
 * of the host. Who starts a console in the foreground grants this by starting it; nothing of the network reaches its door.
 */
export const consolePolicy = (own: Environment): LocalPolicy => {
  const { dev, ino } = statSync('/', { bigint: true })
  const inherited = Object.entries(own).flatMap(([name, value]) =>
    value === undefined || NOT_INHERITED.includes(name) ? [] : [[name, value] as const],
  )
  return Object.freeze({
    source: 'x0x console',
    roots: Object.freeze([Object.freeze({ path: '/', real: '/', dev, ino })]),
    granted: new Set(['exec', 'exec.input', 'pty', 'events'] as const),
    allow_commands: null,
    deny_commands: [],
    targets: [],
    targets_as_operator: false,
    allow_env: null,
    any_program: true,
    env: Object.freeze(Object.fromEntries(inherited)),
    unattended: true,
    limits: Object.freeze({
      ...DEFAULT_LOCAL_LIMITS,
      // A human watches, and ends what goes on for too long.
      default_timeout_ms: Number.MAX_SAFE_INTEGER,
      hard_timeout_ms: Number.MAX_SAFE_INTEGER,
      // The screen shows all of it; replies and transcripts have bounds of their own.
      max_output_bytes: Number.MAX_SAFE_INTEGER,
      max_processes_per_session: MAX_CONSOLE_RUNS,
      // Each connection has one at most, and some rest.
      max_concurrent_sessions: 2 * MAX_CONSOLE_CONNECTIONS,
    }),
  })
}
