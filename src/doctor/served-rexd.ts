import type { ListenAddress } from '../base/private-socket.ts'
import { answers } from '../base/unix-socket.ts'
import type { DaemonConfig } from '../config/config.ts'
import { lifeOf } from '../base/process-identity.ts'
import { fail, ok, warn, type Finding } from './findings.ts'
import { described } from './processes.ts'
import { readPidFile } from '../supervision/pid-file.ts'
import { inspectRexd, rexdFindings } from './rexd-check.ts'
import { readRexdConfig } from '../config/rexd-config.ts'

const TOPIC = 'rexd'

/** A line of `--check` for what keeps REXD alone from starting: the daemon starts all the same. */
const doubt = (text: string): Finding => warn(TOPIC, text, 'mend it; until then x0xd goes on without REXD, and tries again')
const fault = (text: string): Finding => fail(TOPIC, text, 'mend it; x0xd tries again by itself')

/** The configuration of the REXD that is to be served, or nothing where none is. */
export const checkServedRexd = async ({ rexd_config: file }: DaemonConfig, { strict }: { strict: boolean }): Promise<Finding[]> => {
  if (file === null) return []
  const inspection = await inspectRexd(file, process.env, { http: true })
  return rexdFindings(inspection, { topic: TOPIC, obstacle: strict ? fault : doubt })
}

/** Where it is to listen; null where it is not, or where that cannot be read. */
export const rexdListen = async ({ rexd_config: file }: DaemonConfig): Promise<ListenAddress | null> =>
  file === null ? null : ((await readRexdConfig(file, process.env)).config?.http?.listen ?? null)

/** Whether the socket that it is to make is anybody's. */
export const checkRexdSocket = async (path: string): Promise<Finding> =>
  (await answers(path).catch(() => false))
    ? fail('rexd socket', `another answers on ${path}`, 'choose another in server.http_listen, or stop what answers')
    : ok('rexd socket', `${path} is free`)

/** The process that the running daemon has for it. */
export const checkRunningRexd = async ({ rexd_config: file, paths }: DaemonConfig): Promise<Finding[]> => {
  const claim = await readPidFile(paths.rexdPid)
  if (claim === null && file === null) return []
  if (claim === null) return [warn(TOPIC, 'the running daemon does not serve it', 'restart it, so that it reads rexd_config')]
  if (lifeOf(claim) !== 'gone') return [ok(TOPIC, await described(claim.pid))]
  const remedy = file === null ? 'look at its log' : `look at its log; rexd --check --config ${file}`
  return [fail(TOPIC, 'it has ended and is being started again', remedy)]
}
