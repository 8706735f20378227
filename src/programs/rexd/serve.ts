import { X509Certificate } from 'node:crypto'
import { aborted } from '../../base/abort.ts'
import { systemClock } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import type { GivenOptions } from '../../base/hint.ts'
import { printAtStart } from '../../base/log-output.ts'
import { type Logger, createLogger } from '../../base/log.ts'
import { type Environment, VERSION } from '../../base/runtime.ts'
import { DAEMON_STOP_SIGNALS, logStopFailures, stopConditions } from '../../cli/exit.ts'
import type { CommandLine } from '../../cli/parse.ts'
import { badFlags } from '../../cli/program-line.ts'
import { REXD } from '../../cli/rexd.ts'
import { DEFAULT_REXD_CONFIG } from '../../clients/paths.ts'
import { type RexdConfig, loadRexdConfig, withoutHttp } from '../../config/rexd-config.ts'
import { type RexdHttpConfig, type TlsMaterial, readTlsMaterial } from '../../config/rexd-http-config.ts'
import { fail, reportFindings } from '../../doctor/findings.ts'
import { checkProgramStart, inspectRexd, modesFindings, rexdFindings } from '../../doctor/rexd-check.ts'
import { serveLines } from '../../doors/rpc/stdio.ts'
import { loadOrCreateSeed } from '../../identity/key-file.ts'
import { toHex } from '../../protocol/ids.ts'
import { CAPABILITY_NAMES } from '../../protocol/rexd/fields.ts'
import { type RunningExecutor, startLocalExecutor } from '../../supervision/local-executor.ts'
import { obeyDaemon } from '../../supervision/rexd-drain.ts'
import { ReloadSignal } from '../../supervision/reload-signal.ts'
import { ServiceManager } from '../../supervision/service-manager.ts'

export interface RexdFlags {
  readonly mode: 'stdio' | 'http' | 'check'
  readonly json: boolean
  /** End when standard input ends. */
  readonly exitOnEof: boolean
  readonly config: string
  /** For hints. */
  readonly given: GivenOptions
}

/** Throws `bad_config` naming the flag that is wrong. */
export const rexdFlags = (line: CommandLine): RexdFlags => {
  const mode = line.has('check') ? 'check' : line.has('http') ? 'http' : 'stdio'
  if (mode === 'stdio' && !line.has('stdio')) throw badFlags('choose --stdio or --http', REXD.name)
  return {
    mode,
    json: line.has('json'),
    exitOnEof: line.has('exit-on-eof'),
    config: line.value('config') ?? DEFAULT_REXD_CONFIG,
    given: line.given,
  }
}

/** Reads the certificate files again and returns the result for the status line. Unusable files change nothing. */
export const renewCertificates = async (
  { door, log }: { readonly door: { renewCertificates(tls: TlsMaterial): void }; readonly log: Logger },
  http: RexdHttpConfig,
): Promise<string> => {
  try {
    const tls = await readTlsMaterial(http)
    if (tls === null) {
      log.warn('nothing to reload: no certificates are configured, and rexd reads the rest only at its start')
      return ''
    }
    const until = new X509Certificate(tls.cert).validToDate
    if (until.getTime() <= Date.now()) throw new AppError('bad_config', `server.tls_cert: it was valid until ${until.toISOString()}`)
    door.renewCertificates(tls)
    log.warn({ valid_until: until.toISOString() }, 'the certificates were reloaded')
    return '; the certificates were reloaded'
  } catch (error) {
    log.error({ err: errorText(error) }, 'the certificates could not be used, and the old ones stay in use')
    return '; the certificates could not be used, and the old ones stay in use'
  }
}

/** Capabilities over standard input and output. Nothing outlives them. */
const OVER_STDIO = CAPABILITY_NAMES.filter((name) => name !== 'exec.detach')

type Serve = (
  door: { readonly config: RexdConfig; readonly log: Logger; readonly rexd: RunningExecutor },
  signal: AbortSignal,
) => Promise<void>

const overStdio: Serve = async ({ config, log, rexd }, signal) => {
  if (!config.stdio) throw new AppError('bad_config', `${config.path}: server.stdio is false: this rexd does not serve standard input`)
  const door = { input: process.stdin, output: process.stdout, executor: rexd.executor, clock: systemClock, log }
  await serveLines(door, { door: 'stdio', available: OVER_STDIO }, signal)
}

/** `isServed` means that a daemon started this process and writes to its standard input. */
const overHttp =
  (reloads: ReloadSignal, isServed: boolean): Serve =>
  async ({ config, log, rexd }, signal) => {
    if (isServed) obeyDaemon({ rexd, clock: systemClock }, process)
    const { http } = config
    if (http === null) throw withoutHttp(config)
    const { listen, token_file: tokenFile, allowed_hosts: hosts, allowed_origins: origins } = http
    const manager = ServiceManager.here(log)
    const tls = await readTlsMaterial(http)
    const token = toHex(await loadOrCreateSeed({ path: tokenFile, header: null }))
    // The HTTP server is not loaded for standard input.
    const { RpcHttpServer } = await import('../../doors/rpc/rpc-http-server.ts')
    const door = new RpcHttpServer(
      { executor: rexd.executor, clock: systemClock, log },
      { listen, token, allowed: { hosts, origins }, tls, onRefused: rexd.refused },
    )
    await door.start()
    printAtStart(`rexd ${VERSION} ready: ${door.url}, token in ${tokenFile}, configuration ${config.path}\n`)
    let reloaded = ''
    manager.ready({ status: () => `${door.url}${reloaded}`, isWell: () => true })
    reloads.serve({ log, manager, work: async () => (reloaded = await renewCertificates({ door, log }, http)) })
    await aborted(signal)
    manager.stopping()
    await door.stop()
  }

const run = async (flags: RexdFlags, env: Environment, serve: Serve, signals?: readonly NodeJS.Signals[]): Promise<number> => {
  const { config, warnings } = await loadRexdConfig(flags.config, env)
  const log = createLogger({ name: 'rexd', level: config.log_level })
  for (const warning of warnings) log.warn(warning)
  const stop = stopConditions(log, { untilEof: flags.exitOnEof, ...(signals && { signals }) })
  const rexd = await startLocalExecutor({ ...config, name: 'rexd' }, env, log)
  try {
    await serve({ config, log, rexd }, stop.signal)
  } finally {
    logStopFailures(log, await rexd.stop())
  }
  return stop.status() ?? 0
}

const TOPIC = 'configuration'

const check = async (flags: RexdFlags, env: Environment): Promise<number> => {
  const inspection = await inspectRexd(flags.config, env, { http: false })
  const findings = rexdFindings(inspection, { topic: TOPIC, obstacle: (text) => fail(TOPIC, text, null) })
  const modes = inspection.config === null ? [] : await modesFindings(inspection.config, env)
  return reportFindings([...findings, ...checkProgramStart(), ...modes], flags)
}

export const serveRexd = async (line: CommandLine, env: Environment): Promise<number> => {
  const flags = rexdFlags(line)
  switch (flags.mode) {
    case 'check':
      return check(flags, env)
    case 'stdio':
      return run(flags, env, overStdio)
    case 'http':
      // The signal handler comes first, so that a reload signal does not end a start.
      return run(flags, env, overHttp(new ReloadSignal(), flags.exitOnEof), DAEMON_STOP_SIGNALS)
  }
}
