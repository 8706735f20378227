import { errorText } from '../base/errors.ts'
import { socketDirProblems } from '../base/private-socket.ts'
import type { Environment } from '../base/environment.ts'
import { checkRexdJournal } from './exec-files.ts'
import { fail, ok, warn, type Finding } from './findings.ts'
import { readRexdConfig, withoutHttp, type RexdConfig } from '../config/rexd-config.ts'
import { readTlsMaterial, type RexdHttpConfig } from '../config/rexd-http-config.ts'

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
