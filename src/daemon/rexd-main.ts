import { constants } from 'node:os'

import { systemClock } from '../base/clock.ts'
import { AppError, ERROR_TABLE, errorText, isAppError } from '../base/errors.ts'
import { createLogger } from '../base/log.ts'
import { VERSION } from '../base/version.ts'
import { serveLines } from '../doors/rpc/stdio.ts'
import type { Capability } from '../protocol/rexd-names.ts'
import { startRexd } from './compose-rexd.ts'
import type { Environment } from './config.ts'
import { fail, findingsJson, findingsText, isWell, ok, warn } from './findings.ts'
import { onMistake } from './mistakes.ts'
import { loadRexdConfig, readRexdConfig, type RexdConfig } from './rexd-config.ts'
import { parseRexdFlags, type RexdFlags } from './rexd-flags.ts'

/** Configuration or flags are wrong. */
const EXIT_BAD_CONFIG = 2
const EXIT_FAILURE = 1

/** What standard input and output can carry: nothing outlives them. */
const OVER_STDIO: readonly Capability[] = ['exec', 'exec.input', 'exec.shell', 'fs.read', 'fs.write', 'events']

const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGHUP'] as const

const serve = async (flags: RexdFlags, env: Environment): Promise<number> => {
  const { config, warnings } = await loadRexdConfig(flags.config, env)
  if (!config.stdio) throw new AppError('bad_config', `${config.path}: server.stdio is false: this rexd does not serve standard input`)
  const log = createLogger({ name: 'rexd', level: config.log_level })
  for (const warning of warnings) log.warn(warning)
  const stopping = new AbortController()
  let signalled: NodeJS.Signals | null = null
  for (const signal of STOP_SIGNALS)
    process.on(signal, () => {
      signalled ??= signal
      stopping.abort()
    })
  const mistake = onMistake(log)
  void mistake.then(() => stopping.abort())
  const rexd = await startRexd(config, log)
  const client = rexd.connect()
  const door = { input: process.stdin, output: process.stdout, client, clock: systemClock, log }
  await serveLines(door, { door: 'stdio', available: OVER_STDIO }, stopping.signal)
  client.stop()
  const failures = await rexd.stop()
  for (const failure of failures) log.error({ part: failure.name, err: errorText(failure.error) }, 'a part did not stop well')
  if (signalled !== null) return 128 + constants.signals[signalled]
  return failures.length === 0 && !stopping.signal.aborted ? 0 : EXIT_FAILURE
}

const TOPIC = 'configuration'

const summaryOf = ({ path, policy: { roots, granted, allow_commands } }: RexdConfig): string =>
  `${path}: roots ${roots.map((root) => root.path).join(', ')}; grants ${[...granted].join(', ')}; ${allow_commands === null ? 'any command' : `${allow_commands.length} commands`}`

const check = async (flags: RexdFlags, env: Environment): Promise<number> => {
  const { config, problems, warnings } = await readRexdConfig(flags.config, env)
  const findings = [
    ...problems.map((text) => fail(TOPIC, text, null)),
    ...warnings.map((text) => warn(TOPIC, text, 'nothing, where it is meant')),
    ...(config !== null && problems.length === 0 ? [ok(TOPIC, summaryOf(config))] : []),
  ]
  process.stdout.write(flags.json ? findingsJson(findings) : findingsText(findings))
  return isWell(findings) ? 0 : EXIT_BAD_CONFIG
}

const dispatch = async (flags: RexdFlags, env: Environment): Promise<number> => {
  switch (flags.mode) {
    case 'help':
    case 'version':
      process.stdout.write(flags.text)
      return 0
    case 'check':
      return check(flags, env)
    case 'stdio':
      return serve(flags, env)
  }
}

/** Runs `rexd` with the words behind its name and answers the exit status: 0; 2 for configuration or flags; 128+n for a signal; 1 for anything else. */
export const main = async (argv: readonly string[], env: Environment): Promise<number> => {
  try {
    return await dispatch(parseRexdFlags(argv, VERSION), env)
  } catch (error) {
    const lines = errorText(error).split('\n')
    process.stderr.write(`${lines.map((line) => `rexd: ${line}`).join('\n')}\n`)
    return isAppError(error) && ERROR_TABLE[error.code].exit === EXIT_BAD_CONFIG ? EXIT_BAD_CONFIG : EXIT_FAILURE
  }
}
