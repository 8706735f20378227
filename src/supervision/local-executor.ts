import { Journal } from '../audit/journal.ts'
import { LocalMarks, localMarksOf } from '../audit/local-marks.ts'
import { systemClock, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { startAll, stopAll, type StartableEntry, type StopFailure } from '../base/startable.ts'
import type { HttpRefusal } from '../doors/access.ts'
import { LocalEngine } from '../executor/local/local-engine.ts'
import { LocalJournal } from '../executor/local/local-journal.ts'
import { DoorCalls } from '../executor/local/door-calls.ts'
import type { LocalExecutor } from '../executor/port/local-executor.ts'
import { Cells } from '../process/cells.ts'
import { Guardian } from '../process/guardian.ts'
import type { Environment } from '../base/environment.ts'
import { LocalApi } from '../local-api/local-api.ts'
import { instanceChoice } from '../local-api/paths.ts'
import type { RexdConfig } from '../config/rexd-config.ts'
import { DaemonTargets } from '../local-api/daemon-targets.ts'

/** An engine for the doors of one process: no mesh, no identity, no port of the network. */
export interface RunningExecutor {
  /** What these doors call. */
  readonly executor: LocalExecutor
  /** In the journal: a request over HTTP that was refused before it could ask anything. */
  refused(refusal: HttpRefusal): void
  stop(): Promise<readonly StopFailure[]>
}

/** Ending all children takes at most 8 s, and their last lines in the journal a little more. */
const ENGINE_STOP_MS = 10_000

/** The daemon of this host that is meant, as `x0x` finds it. */
export const daemonApi = (env: Environment): LocalApi => {
  const instance = instanceChoice({ name: null, dataDir: null }, env)
  return new LocalApi({ instance, url: env['X0X_API'] ?? null, env })
}

/** Several processes of a user write the same file, and none has a key to sign with. */
const journalAt = (path: string, policySha256: string, components: { clock: Clock; log: Logger }): Journal =>
  new Journal(components, { path, marks: new LocalMarks(components, { directory: localMarksOf(path) }), policySha256, shared: true })

/** Starts the engine of this process with what the configuration allows: its cells, journal and guardian, and the way to the mesh. */
export const startLocalExecutor = async (
  { policy, audit_path, sha256 }: Pick<RexdConfig, 'policy' | 'audit_path' | 'sha256'>,
  env: Environment,
  log: Logger,
): Promise<RunningExecutor> => {
  const clock = systemClock
  const guardian = new Guardian({ log })
  const cells = await Cells.open({ guardian, log }, { choice: 'auto', dataDir: null, endsLeftovers: true })
  const journal = audit_path === null ? null : journalAt(audit_path, sha256, { clock, log })
  const engine = new LocalEngine({
    cells,
    clock,
    guardian,
    journal: new LocalJournal({ journal, log }),
    log,
    policy,
    targets: policy.granted.has('target')
      ? new DaemonTargets({ daemon: () => daemonApi(env) }, { asOperator: policy.targets_as_operator })
      : null,
  })
  const entries: StartableEntry[] = [
    { name: 'cells', startable: cells },
    ...(journal === null ? [] : [{ name: 'journal', startable: journal }]),
    { name: 'guardian', startable: guardian },
    { name: 'engine', startable: engine, deadlineMs: ENGINE_STOP_MS },
  ]
  await startAll(entries)
  const refused = (refusal: HttpRefusal): void =>
    void engine.components.journal.refused({ event: 'http_refused', ...refusal, detail: null })
  return { executor: new DoorCalls({ engine }), refused, stop: async () => stopAll(entries) }
}
