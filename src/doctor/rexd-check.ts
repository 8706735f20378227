import { join } from 'node:path'
import { errorText } from '../base/errors.ts'
import { silentLogger } from '../base/log.ts'
import type { Environment } from '../base/runtime.ts'
import { type ListenAddress, answers, socketDirProblems } from '../base/unix-sockets.ts'
import { dataDirOf, instanceChoice, pathsIn } from '../clients/paths.ts'
import type { DaemonConfig } from '../config/config.ts'
import { type RexdConfig, readRexdConfig, withoutHttp } from '../config/rexd-config.ts'
import { type RexdHttpConfig, readTlsMaterial } from '../config/rexd-http-config.ts'
import { exposedDataDir } from '../policy/local/authorize.ts'
import { NO_SETTINGS, type ToolsSettings, placesOf, resolveExec } from '../policy/modes.ts'
import { IMAGES_DIRECTORY, sandboxPath } from '../policy/sandbox/sandbox-grant.ts'
import type { SandboxSettings } from '../policy/sandbox/sandbox-settings.ts'
import { slowStartProblem } from '../process/child.ts'
import { KOFFI_PACKAGE } from '../process/c-library.ts'
import { ProcessTrees } from '../process/process-trees.ts'
import { ImageStore } from '../process/sandbox/images.ts'
import { DEFAULT_SANDBOX_PROCESSES } from '../protocol/limits/daemon.ts'
import { deskFindings } from './desk-check.ts'
import { checkRexdJournal } from './exec-files.ts'
import { type Finding, fail, ok, warn } from './findings.ts'

const TOPIC = 'commands'

/** Any agent that the file does not name. */
const OTHERS = ''

const whereOf = (tools: ToolsSettings, agent: string): string => {
  const resolved = resolveExec({ parameter: NO_SETTINGS, ...placesOf(tools, agent, null) })
  if (resolved.kind === 'refused') return 'nowhere'
  const { host, node, security, ask } = resolved
  const { engine, network, unix_sockets } = tools.sandbox
  const place = {
    sandbox: `in a sandbox (${engine}, ${network ? "with this host's network" : unix_sockets ? 'without a network, with Unix sockets' : 'without a network'})`,
    gateway: 'on this host',
    node: node === null ? 'on an agent of the mesh that each call names' : `on ${node}`,
  }[host]
  return `${place}, security ${security}, ask ${ask}`
}

/** Why the image is not available, or null if it is, and is now unpacked. */
const imageProblem = async (settings: SandboxSettings, userNamespace: boolean): Promise<string | null> => {
  if (settings.engine === 'bubblewrap') return null
  const image = new ImageStore().image(settings, join(sandboxPath().home, IMAGES_DIRECTORY), userNamespace)
  return image.then(() => null, errorText)
}

/** The limits of a run. A configured limit that cannot be enforced is already reported. */
const boundsText = ({ max_memory_bytes, max_processes }: SandboxSettings, countsProcesses: boolean): string => {
  const memory = max_memory_bytes === null ? 'its memory is not limited (max_memory_bytes)' : `at most ${max_memory_bytes} bytes of memory`
  const processes = countsProcesses
    ? `at most ${max_processes ?? DEFAULT_SANDBOX_PROCESSES} processes`
    : 'the number of processes is not limited, because no control group is available'
  return `${memory}; ${processes}`
}

/** Tries whether the configured sandbox works on this host, for every check and doctor. */
export const sandboxFinding = async (settings: SandboxSettings): Promise<Finding> => {
  const trees = await ProcessTrees.open({ cleanup: null, log: silentLogger }, { choice: 'auto', dataDir: null, sandbox: settings })
  try {
    const support = await trees.sandboxSupport(settings)
    const problem = support.kind === 'works' ? await imageProblem(settings, support.userNamespace) : support.problem
    if (problem === null) return ok('sandbox', `${settings.engine} works; ${boundsText(settings, trees.countsProcesses)}`)
    return warn(
      'sandbox',
      `no sandbox works on this machine, and commands that need one are refused: ${problem}`,
      'fix it, and check again',
    )
  } finally {
    await trees.stop()
  }
}

/** Whether programs start slowly. Empty if they do not. */
export const checkProgramStart = (): Finding[] => {
  const problem = slowStartProblem()
  return problem === null
    ? []
    : [warn('programs', `each start of a program takes about 10 ms longer: ${problem}`, `npm install ${KOFFI_PACKAGE}`)]
}

/** Hosts of commands, and whether the sandbox works. Empty if the configuration does not choose among hosts. */
export const placeFindings = async ({ tools, policy }: RexdConfig, dataDir: string): Promise<Finding[]> => {
  if (tools === undefined) return []
  const problem = exposedDataDir(policy, dataDir)
  const exposed = problem === null ? [] : [fail(TOPIC, problem, 'name roots without the data directory')]
  const agents = Object.keys(tools.agents).map((agent) => ok(TOPIC, `those of ${agent} run ${whereOf(tools, agent)}`))
  const others = ok(TOPIC, `${agents.length === 0 ? 'they' : 'those of others'} run ${whereOf(tools, OTHERS)}`)
  return [...exposed, ...agents, others, await sandboxFinding(tools.sandbox)]
}

/** Like `placeFindings`, and whether an approver can be asked. */
export const modesFindings = async (config: RexdConfig, env: Environment): Promise<Finding[]> => {
  if (config.tools === undefined) return []
  const paths = pathsIn(dataDirOf(instanceChoice({ name: null, dataDir: null }, env)))
  return [...(await placeFindings(config, paths.dir)), ...(await deskFindings(paths))]
}

export interface RexdInspection {
  /** Null if the file cannot be read at all. */
  readonly config: RexdConfig | null
  /** Problems of the file, which prevent a start. */
  readonly problems: readonly string[]
  /** Problems of files that it names, such as certificates and the socket's directory. They may be repaired at any time. */
  readonly obstacles: readonly string[]
  readonly warnings: readonly string[]
}

/** Inspects a configuration and the files that it names, without starting or creating anything. `http` tells whether it is for HTTP. */
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

/** `obstacle` makes the line of an obstacle, which is not a failure if the daemon starts without REXD. */
export const rexdFindings = (
  { config, problems, obstacles, warnings }: RexdInspection,
  { topic, obstacle }: { topic: string; obstacle: (text: string) => Finding },
): Finding[] => [
  ...problems.map((text) => fail(topic, text, null)),
  ...obstacles.map(obstacle),
  ...warnings.map((text) => warn(topic, text, 'none, if this is intended')),
  ...(config !== null && problems.length === 0 && obstacles.length === 0 ? [ok(topic, summaryOf(config))] : []),
]

/** The topic of REXD's lines among those of the daemon. */
export const REXD_TOPIC = 'REXD'

/** A line for a problem that only prevents REXD. The daemon still starts. */
const doubt = (text: string): Finding => warn(REXD_TOPIC, text, 'fix it; until then, x0xd runs without REXD and tries again')
const fault = (text: string): Finding => fail(REXD_TOPIC, text, 'fix it; x0xd tries again')

/** The configuration of the served REXD, or empty without one. */
export const checkServedRexd = async ({ rexd_config: file, paths }: DaemonConfig, { strict }: { strict: boolean }): Promise<Finding[]> => {
  if (file === null) return []
  const inspection = await inspectRexd(file, process.env, { http: true })
  const places = inspection.config === null ? [] : await placeFindings(inspection.config, paths.dir)
  return [...rexdFindings(inspection, { topic: REXD_TOPIC, obstacle: strict ? fault : doubt }), ...places]
}

/** Its listen address, or null if it does not listen or is unreadable. */
export const rexdListen = async ({ rexd_config: file }: DaemonConfig): Promise<ListenAddress | null> =>
  file === null ? null : ((await readRexdConfig(file, process.env)).config?.http?.listen ?? null)

/** Whether another process uses its socket. */
export const checkRexdSocket = async (path: string): Promise<Finding> =>
  (await answers(path).catch(() => false))
    ? fail('REXD socket', `another program answers on ${path}`, 'choose another in server.http_listen, or stop that program')
    : ok('REXD socket', `${path} is free`)
