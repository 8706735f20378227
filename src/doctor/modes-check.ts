import { join } from 'node:path'
import type { Environment } from '../base/environment.ts'
import { errorText } from '../base/errors.ts'
import { silentLogger } from '../base/log.ts'
import { dataDirOf, instanceChoice, pathsIn } from '../clients/paths.ts'
import type { RexdConfig } from '../config/rexd-config.ts'
import { exposedDataDir } from '../policy/local/own-places.ts'
import { NO_SETTINGS, resolveExec } from '../policy/modes/settings.ts'
import { type ToolsSettings, placesOf } from '../policy/modes/tools-settings.ts'
import { IMAGES_DIRECTORY, sandboxPlace } from '../policy/sandbox/sandbox-grant.ts'
import type { SandboxSettings } from '../policy/sandbox/sandbox-settings.ts'
import { Cells } from '../process/cells.ts'
import { ImageStore } from '../process/sandbox/image-store.ts'
import { DEFAULT_SANDBOX_PROCESSES } from '../protocol/sandbox-limits.ts'
import { deskFindings } from './desk-check.ts'
import { type Finding, fail, ok, warn } from './findings.ts'

const TOPIC = 'commands'

/** An agent that the file does not name. */
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

/** Why the image cannot be had; null: it can, and is unpacked now. */
const imageProblem = async (settings: SandboxSettings, userNamespace: boolean): Promise<string | null> => {
  if (settings.engine === 'bubblewrap') return null
  const image = new ImageStore().image(settings, join(sandboxPlace().home, IMAGES_DIRECTORY), userNamespace)
  return image.then(() => null, errorText)
}

/** What a run may use at most. Where a bound is asked for, one that cannot be had is a problem already. */
const boundsText = ({ max_memory_bytes, max_processes }: SandboxSettings, countsProcesses: boolean): string => {
  const memory = max_memory_bytes === null ? 'its memory is not bounded (max_memory_bytes)' : `at most ${max_memory_bytes} bytes of memory`
  const processes = countsProcesses
    ? `at most ${max_processes ?? DEFAULT_SANDBOX_PROCESSES} processes`
    : 'the number of its processes is not bounded, because there is no control group for it'
  return `${memory}; ${processes}`
}

/** Whether the sandbox that a configuration describes can be had on this host, tried really; for every check and doctor. */
export const sandboxFinding = async (settings: SandboxSettings): Promise<Finding> => {
  const cells = await Cells.open({ guardian: null, log: silentLogger }, { choice: 'auto', dataDir: null, sandbox: settings })
  try {
    const support = await cells.sandboxSupport(settings)
    const problem = support.kind === 'works' ? await imageProblem(settings, support.userNamespace) : support.problem
    if (problem === null) return ok('sandbox', `${settings.engine} makes one here; ${boundsText(settings, cells.countsProcesses)}`)
    return warn(
      'sandbox',
      `none can be had here, and commands that are to run in one are refused: ${problem}`,
      'mend that, and check again',
    )
  } finally {
    await cells.stop()
  }
}

/** Where commands would run, and whether a sandbox can be had. Nothing where the configuration does not choose among hosts. */
export const placeFindings = async ({ tools, policy }: RexdConfig, dataDir: string): Promise<Finding[]> => {
  if (tools === undefined) return []
  const problem = exposedDataDir(policy, dataDir)
  const exposed = problem === null ? [] : [fail(TOPIC, problem, 'name roots without the data directory')]
  const agents = Object.keys(tools.agents).map((agent) => ok(TOPIC, `those of ${agent} run ${whereOf(tools, agent)}`))
  const others = ok(TOPIC, `${agents.length === 0 ? 'they' : 'those of others'} run ${whereOf(tools, OTHERS)}`)
  return [...exposed, ...agents, others, await sandboxFinding(tools.sandbox)]
}

/** The same, and whether anybody can be asked. */
export const modesFindings = async (config: RexdConfig, env: Environment): Promise<Finding[]> => {
  if (config.tools === undefined) return []
  const paths = pathsIn(dataDirOf(instanceChoice({ name: null, dataDir: null }, env)))
  return [...(await placeFindings(config, paths.dir)), ...(await deskFindings(paths))]
}
