import { systemClock } from '../../base/clock.ts'
import type { Environment } from '../../base/environment.ts'
import { AppError } from '../../base/errors.ts'
import { absolutePath } from '../../base/home.ts'
import { createLogger } from '../../base/log.ts'
import { loadRexdConfig } from '../../config/rexd-config.ts'
import { serveMcp } from '../../doors/mcp/serve-mcp.ts'
import { LineRecorder } from '../../doors/tools/run-recorder.ts'
import { filesProblem } from '../../fs/held.ts'
import { LifecycleLog } from '../../protocol/lifecycle-log.ts'
import { CAPABILITY_GROUPS, type Capability } from '../../protocol/rexd-names.ts'
import { startLocalExecutor } from '../../supervision/local-executor.ts'
import { logStopFailures, stopConditions } from '../../supervision/program-exit.ts'
import type { McpFlags } from './flags.ts'
import { FOR_TOOLS, plainOffer, ruleOffer } from './offer.ts'
import { writableRules } from './own-files.ts'
import { RecordFile } from './record-file.ts'

/** Without files where the system has no way to hold a directory. */
const grantedHere = (granted: ReadonlySet<Capability>): ReadonlySet<Capability> =>
  filesProblem() === null ? granted : new Set([...granted].filter((one) => !CAPABILITY_GROUPS.fs.some((file) => file === one)))

/** Serves standard input and output until they end; answers the exit status. */
export const serve = async (flags: Extract<McpFlags, { mode: 'serve' }>, env: Environment): Promise<number> => {
  const { whoami, config: file, answerWithinMs, record: path, rules } = flags
  const { config, warnings } = await loadRexdConfig(file, env)
  const [problem] = writableRules(config, path === null ? null : absolutePath('--record', path))
  if (problem !== undefined) throw new AppError('bad_config', problem)
  const log = createLogger({ name: 'x0x-mcp', level: config.log_level })
  for (const warning of warnings) log.warn(warning)
  const ending = new AbortController()
  const told = new LifecycleLog({ id: whoami, now: () => systemClock.now() })
  const offer =
    rules === null ? plainOffer(grantedHere(config.policy.granted)) : await ruleOffer(rules, config, { env, log, ended: ending.signal })
  const record = path === null ? null : await RecordFile.create(path, log)
  const recorder = record && new LineRecorder({ clock: systemClock, write: (line) => record.write(line) }, { whoami })
  const stop = stopConditions(log, { untilEof: false })
  const local = await startLocalExecutor({ ...config, name: 'x0x mcp' }, env, log)
  try {
    const components = { input: process.stdin, output: process.stdout, executor: local.executor, clock: systemClock, log, told }
    const caller = { door: 'mcp' as const, client_name: whoami, available: FOR_TOOLS }
    const answerWithin = answerWithinMs ?? config.answer_within_ms
    await serveMcp(components, { caller, answerWithinMs: answerWithin, offer, recorder }, stop.signal)
  } finally {
    ending.abort()
    logStopFailures(log, await local.stop())
    await record?.close()
  }
  return stop.status() ?? 0
}
