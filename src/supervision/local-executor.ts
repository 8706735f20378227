import { type Clock, systemClock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Environment } from '../base/runtime.ts'
import { type StartableEntry, type StopFailure, startAll, stopAll } from '../base/startable.ts'
import { DaemonNodes, DaemonTargets } from '../clients/daemon-targets.ts'
import { LocalApi } from '../clients/daemon.ts'
import { dataDirOf, instanceChoice, pathsIn } from '../clients/paths.ts'
import type { RexdConfig } from '../config/rexd-config.ts'
import { DeskSocketLink } from '../desk/engine-client.ts'
import type { WorkList } from '../protocol/handover.ts'
import type { HttpRefusal } from '../doors/http.ts'
import type { LocalExecutor } from '../executor-api/local.ts'
import { LocalExecutorService } from '../executor/local/api.ts'
import { LocalEngine } from '../executor/local/engine.ts'
import { EngineModes } from '../executor/local/exec-target.ts'
import { LocalJournal } from '../executor/local/journal.ts'
import { Journal } from '../journal/journal.ts'
import { LocalMarks, localMarksOf } from '../journal/running-marks.ts'
import { exposedDataDir } from '../policy/local/authorize.ts'
import type { LocalPolicy } from '../policy/local/policy.ts'
import { ProcessTrees } from '../process/process-trees.ts'
import { setOpenFilesOfCommands, setUmaskOfCommands } from '../process/command-settings.ts'
import { CleanupProcess } from '../process/cleanup-process.ts'
import { PrivateCopies } from '../process/private-copies.ts'

/** The executor for local interfaces of one process, without mesh, identity and network process. */
export interface RunningExecutor {
  /** Service that the interfaces call. */
  readonly executor: LocalExecutor
  /** While true, refuses new sessions and commands. */
  drain(isDraining: boolean): void
  /** Programs that run. */
  work(): WorkList
  /** Records an HTTP request that was refused before it had any effect. */
  refused(refusal: HttpRefusal): void
  stop(): Promise<readonly StopFailure[]>
}

/** Ending all children takes at most 8 s, and their last audit log lines a little more. */
const ENGINE_STOP_MS = 10_000

/** The API of the selected daemon, as `x0x` finds it. */
export const daemonApi = (env: Environment): LocalApi => {
  const instance = instanceChoice({ name: null, dataDir: null }, env)
  return new LocalApi({ instance, url: env['X0X_API'] ?? null, env })
}

/** Several processes of a user write the same file, and none has a signing key. */
const journalAt = (path: string, policySha256: string, components: { clock: Clock; log: Logger }): Journal =>
  new Journal(components, { path, marks: new LocalMarks(components, { directory: localMarksOf(path) }), policySha256 })

/** Settings of an executor, and its name for the approval service. */
export interface EngineInit extends Pick<RexdConfig, 'policy' | 'audit_path' | 'sha256' | 'tools'> {
  readonly name?: string
  /** ID of the console that this executor serves. */
  readonly console?: string
}

/**
 * Modes and approval service, or null if the configuration has no `[tools.exec]`. The service is connected at the first command. Throws
 * `bad_config`.
 */
const modesOf = (
  { tools, policy, name = 'x0x', console }: EngineInit,
  env: Environment,
  log: Logger,
): { readonly modes: EngineModes; readonly desk: DeskSocketLink; readonly copies: PrivateCopies } | null => {
  if (tools === undefined) return null
  const paths = pathsIn(dataDirOf(instanceChoice({ name: null, dataDir: null }, env)))
  const problem = exposedDataDir(policy, paths.dir)
  if (problem !== null) throw new AppError('bad_config', problem)
  const desk = new DeskSocketLink({ approvals: paths.approvals, approvalsSocket: paths.approvalsSocket, name })
  const nodes = policy.granted.has('target') ? new DaemonNodes({ daemon: () => daemonApi(env) }) : null
  const modes = new EngineModes({ tools, desk, nodes, secrets: [paths.dir], log, ...(console !== undefined && { console }) })
  return { modes, desk, copies: new PrivateCopies({ dataDir: paths.dir }) }
}

const runsAtOnce = ({ limits }: LocalPolicy): number =>
  limits.max_concurrent_sessions * limits.max_processes_per_session + limits.max_detached_processes

/** Starts the executor of this process with its process trees, audit log, cleanup process and mesh client, by the configuration. */
export const startLocalExecutor = async (init: EngineInit, env: Environment, log: Logger): Promise<RunningExecutor> => {
  const { policy, audit_path, sha256 } = init
  const clock = systemClock
  const routed = modesOf(init, env, log)
  const cleanup = new CleanupProcess({ log })
  setUmaskOfCommands()
  const [trees] = await Promise.all([
    ProcessTrees.open({ cleanup, log }, { choice: 'auto', dataDir: null, endsLeftovers: true, sandbox: init.tools?.sandbox }),
    setOpenFilesOfCommands(env, runsAtOnce(policy), log),
  ])
  const journal = audit_path === null ? null : journalAt(audit_path, sha256, { clock, log })
  const engine = new LocalEngine({
    trees,
    clock,
    cleanup,
    journal: new LocalJournal({ journal, log }),
    log,
    policy,
    targets: policy.granted.has('target')
      ? new DaemonTargets({ daemon: () => daemonApi(env) }, { asOperator: policy.targets_as_operator })
      : null,
    ...(routed && { modes: routed.modes, copies: routed.copies, watched: routed.desk }),
  })
  const entries: StartableEntry[] = [
    ...(routed === null ? [] : [{ name: 'desk', startable: { stop: async () => routed.desk.close() } }]),
    ...(routed === null ? [] : [{ name: 'private copies', startable: routed.copies }]),
    { name: 'cells', startable: trees },
    ...(journal === null ? [] : [{ name: 'journal', startable: journal }]),
    { name: 'cleanup process', startable: cleanup },
    { name: 'engine', startable: engine, deadlineMs: ENGINE_STOP_MS },
  ]
  await startAll(entries)
  const refused = (refusal: HttpRefusal): void => void engine.services.journal.refused({ event: 'http_refused', ...refusal, detail: null })
  return {
    executor: new LocalExecutorService({ engine }),
    drain: (isDraining) => engine.drain(isDraining),
    work: () => engine.work,
    refused,
    stop: async () => stopAll(entries),
  }
}
