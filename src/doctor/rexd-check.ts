import type { Environment } from '../base/environment.ts'
import { errorText } from '../base/errors.ts'
import { type ListenAddress, socketDirProblems } from '../base/private-socket.ts'
import { answers } from '../base/unix-socket.ts'
import type { DaemonConfig } from '../config/config.ts'
import { type RexdConfig, readRexdConfig, withoutHttp } from '../config/rexd-config.ts'
import { type RexdHttpConfig, readTlsMaterial } from '../config/rexd-http-config.ts'
import { checkRexdJournal } from './exec-files.ts'
import { type Finding, fail, ok, warn } from './findings.ts'
import { placeFindings } from './modes-check.ts'

export interface RexdInspection {
  /** Null where the file cannot be read at all. */
  readonly config: RexdConfig | null
  /** Of the file: with these nothing begins. */
  readonly problems: readonly string[]
  /** Of what it names, certificates and the socket's directory: may be mended at any time. */
  readonly obstacles: readonly string[]
  readonly warnings: readonly string[]
}

/** A configuration and what it leads to. Starts nothing and makes nothing. `http`: it is to be served so. */
export const inspectRexd = async (file: string, env: Environment, { http }: { http: boolean }): Promise<RexdInspection> => {
  const { config, problems, warnings } = await readRexdConfig(file, env)
  const unserved = http && config?.http === null ? [withoutHttp(config).message] : []
  return { config, problems: [...problems, ...unserved], obstacles: await obstaclesOf(config), warnings }
}

const obstaclesOf = async (config: RexdConfig | null): Promise<string[]> =>
  config === null ? [] : [...(await ofTheJournal(config.audit_path)), ...(config.http === null ? [] : await ofTheListener(config.http))]

const ofTheJournal = async (path: string | null): Promise<string[]> => {
  if (path === null) return []
  const { standing, text, remedy } = await checkRexdJournal(path)
  return standing === 'fail' ? [`audit.path: ${text}; ${String(remedy)}`] : []
}

const ofTheListener = async (http: RexdHttpConfig): Promise<string[]> => {
  const { listen } = http
  const directory = listen.kind === 'unix' ? await socketDirProblems(listen.path) : []
  try {
    await readTlsMaterial(http)
    return directory
  } catch (error) {
    return [...directory, errorText(error)]
  }
}

const summaryOf = ({ path, policy: { roots, granted, allow_commands } }: RexdConfig): string =>
  `${path}: roots ${roots.map((root) => root.path).join(', ')}; grants ${[...granted].join(', ')}; ${allow_commands === null ? 'any command' : `${allow_commands.length} commands`}`

/** `obstacle`: what a line of one is, for whoever goes on without REXD and for whoever does not. */
export const rexdFindings = (
  { config, problems, obstacles, warnings }: RexdInspection,
  { topic, obstacle }: { topic: string; obstacle: (text: string) => Finding },
): Finding[] => [
  ...problems.map((text) => fail(topic, text, null)),
  ...obstacles.map(obstacle),
  ...warnings.map((text) => warn(topic, text, 'nothing, where it is meant')),
  ...(config !== null && problems.length === 0 && obstacles.length === 0 ? [ok(topic, summaryOf(config))] : []),
]

/** Of its lines in the findings about the daemon. */
export const REXD_TOPIC = 'rexd'

/** A line of `--check` for what keeps REXD alone from starting: the daemon starts all the same. */
const doubt = (text: string): Finding => warn(REXD_TOPIC, text, 'mend it; until then x0xd goes on without REXD, and tries again')
const fault = (text: string): Finding => fail(REXD_TOPIC, text, 'mend it; x0xd tries again by itself')

/** The configuration of the REXD that is to be served, or nothing where none is. */
export const checkServedRexd = async ({ rexd_config: file, paths }: DaemonConfig, { strict }: { strict: boolean }): Promise<Finding[]> => {
  if (file === null) return []
  const inspection = await inspectRexd(file, process.env, { http: true })
  const places = inspection.config === null ? [] : await placeFindings(inspection.config, paths.dir)
  return [...rexdFindings(inspection, { topic: REXD_TOPIC, obstacle: strict ? fault : doubt }), ...places]
}

/** Where it is to listen; null where it is not, or where that cannot be read. */
export const rexdListen = async ({ rexd_config: file }: DaemonConfig): Promise<ListenAddress | null> =>
  file === null ? null : ((await readRexdConfig(file, process.env)).config?.http?.listen ?? null)

/** Whether the socket that it is to make is anybody's. */
export const checkRexdSocket = async (path: string): Promise<Finding> =>
  (await answers(path).catch(() => false))
    ? fail('rexd socket', `another answers on ${path}`, 'choose another in server.http_listen, or stop what answers')
    : ok('rexd socket', `${path} is free`)
