import { duplexPair } from 'node:stream'

import { Journal } from '../audit/journal.ts'
import { systemClock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { startAll, stopAll, type StartableEntry, type StopFailure } from '../base/startable.ts'
import { ensurePrivateDir } from '../base/files.ts'
import { ExecCounters } from '../diagnostics/exec-counters.ts'
import { Executor } from '../executor/server.ts'
import { loadOrCreateAgentKey } from '../identity/agent-key.ts'
import { loadOrCreateMachineKey } from '../identity/machine-key.ts'
import { loadAcl, type AclStatus, type LoadedAcl } from '../policy/load-acl.ts'
import { Cells } from '../process/cells.ts'
import { Guardian } from '../process/guardian.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { Contacts } from '../trust/contacts.ts'
import { Revocations } from '../trust/revocations.ts'
import { composeNetwork } from './compose-network.ts'
import type { DaemonConfig } from './config.ts'
import type { Grounds } from './grounds.ts'
import { DataDirLock } from './lock.ts'
import { dataDirMode } from './settings.ts'

/** A daemon that runs. */
export interface Daemon {
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly apiPort: number
  readonly execStatus: AclStatus
  /** Resolves when it cannot go on by itself. */
  readonly failed: Promise<Error>
  /** Ends every child first, then everything else. */
  stop(): Promise<readonly StopFailure[]>
}

/** Ending all children takes at most 3 s, and their last lines in the journal a little more. */
const EXECUTOR_STOP_MS = 5_000

interface ExecutorHalf {
  readonly executor: Executor
  readonly acl: LoadedAcl
  readonly entries: readonly StartableEntry[]
}

/** Starts the two halves on the two ends of a byte stream. Throws what was wrong; then nothing is left running. */
export const startDaemon = async (config: DaemonConfig, log: Logger): Promise<Daemon> => {
  await ensurePrivateDir(config.paths.dir, dataDirMode(config))
  const lock = [{ name: 'data directory', startable: new DataDirLock(config.paths.lock) }]
  await startAll(lock)
  return startHalves(config, log, lock).catch(async (error: unknown) => {
    await stopAll(lock)
    throw error
  })
}

const startHalves = async (config: DaemonConfig, log: Logger, lock: readonly StartableEntry[]): Promise<Daemon> => {
  const machineKey = await loadOrCreateMachineKey(config.paths.dir, dataDirMode(config))
  const grounds: Grounds = { config, clock: systemClock, log, machineKey }
  const half = await composeExecutor(grounds)
  await startAll(half.entries)
  try {
    return await startNetwork(grounds, half, lock)
  } catch (error) {
    await stopAll(half.entries)
    throw error
  }
}

const startNetwork = async (grounds: Grounds, half: ExecutorHalf, lock: readonly StartableEntry[]): Promise<Daemon> => {
  const [ours, theirs] = duplexPair()
  half.executor.attach(ours)
  const network = await composeNetwork(grounds, theirs)
  await startAll(network.entries)
  // Last to start, so first to stop: no child outlives the wish to stop, and its Exit still finds a network.
  const programs = { name: 'programs', startable: { stop: () => half.executor.endRuns() }, deadlineMs: EXECUTOR_STOP_MS }
  let stopping: Promise<readonly StopFailure[]> | null = null
  const everything = [...lock, ...half.entries, ...network.entries, programs]
  return {
    agentId: network.agentId,
    machineId: grounds.machineKey.machineId,
    apiPort: network.apiPort(),
    execStatus: half.acl.status,
    failed: network.closed.then((error) => error ?? new AppError('internal', "the executor's port closed")),
    stop: async () => (stopping ??= stopAll(everything)),
  }
}

/** The half that holds the agent key, decides, journals and runs. It has no socket. */
const composeExecutor = async ({ config, clock, log, machineKey }: Grounds): Promise<ExecutorHalf> => {
  const { paths, share_with_group: groupMayRead } = config
  const contacts = new Contacts({ path: paths.contacts })
  const revocations = new Revocations({ path: paths.revocations })
  await contacts.load()
  await revocations.load()
  const signer = await loadOrCreateAgentKey(paths.dir, dataDirMode(config))
  const guardian = new Guardian({ log })
  // The last that can fail but for what is undone here: it leaves groups behind until it is stopped.
  const cells = await Cells.open({ guardian, log }, { choice: config.containment, dataDir: paths.dir })
  const { exec_acl: path, exec_acl_explicit: explicit } = config
  const acl = await loadAcl({ path, explicit, judge: cells.judge }, clock).catch(async (error: unknown) => {
    await cells.stop()
    throw error
  })
  for (const warning of acl.warnings) log.warn(warning)
  const journalPath = acl.acl.audit_log_path
  const journal = journalPath === null ? null : new Journal({ clock, log }, { path: journalPath, runningDir: paths.runs })
  const counters = new ExecCounters({ clock })
  const executor = new Executor(
    { acl, cells, clock, contacts, counters, guardian, journal, log, revocations, signer },
    { dataDir: paths.dir, machineId: machineKey.machineId, groupMayRead },
  )
  return {
    executor,
    acl,
    entries: [
      // First, so that whatever else does not start, this is stopped.
      { name: 'cells', startable: cells },
      ...(journal === null ? [] : [{ name: 'journal', startable: journal }]),
      { name: 'guardian', startable: guardian },
      { name: 'executor', startable: executor, deadlineMs: EXECUTOR_STOP_MS },
    ],
  }
}
