import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { systemClock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import { writeFileAtomic } from '../base/files.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { TimeSlicer } from '../base/time-slices.ts'
import { type Account, accountProblem, findAccount } from '../policy/account.ts'
import { type Confinement, type EnforcementProbe, type Unenforceable, needsNamespace } from '../policy/mesh/confinement.ts'
import type { Permit, SandboxGrant } from '../policy/permit.ts'
import { DEFAULT_SANDBOX_PROCESSES } from '../protocol/limits/daemon.ts'
import { CONTAINMENTS, type Containment, type ContainmentChoice } from '../protocol/reasons.ts'
import { ProcessTree } from './process-tree.ts'
import { type CgroupLocation, type LimitController, findCgroupPlaces } from './cgroup-tree.ts'
import { type CgroupLeaf, Cgroups, type ParentNames, endLeftovers, parentNamesOf } from './cgroups.ts'
import type { CleanupProcess } from './cleanup-process.ts'
import { findTool, toolsFor } from './launch-plan.ts'
import { namespaceProblem } from './pid-namespace.ts'
import { MarkSearch, newMark, newMarkPrefix } from './run-mark.ts'
import { type SandboxNeed, SandboxProbe, type SandboxSupport } from './sandbox/sandbox-probe.ts'

export interface NotInForce {
  readonly containment: Containment
  readonly why: string
}

/** Content of `containment.json` in the data directory, for examining a running daemon. No start trusts it. */
export interface ContainmentRecord {
  readonly in_force: Containment
  /** Stronger kinds. */
  readonly stronger: readonly NotInForce[]
  /** Groups that may hold runs of this daemon. */
  readonly parents: readonly string[]
}

const isTexts = (value: unknown): value is string[] => Array.isArray(value) && value.every((item) => typeof item === 'string')

const isStronger = (value: unknown): value is NotInForce[] =>
  Array.isArray(value) &&
  value.every((item: unknown) => typeof item === 'object' && item !== null && 'why' in item && typeof item.why === 'string')

/** Null if it is missing or not understood. */
export const readContainmentRecord = async (path: string): Promise<ContainmentRecord | null> => {
  try {
    const value = JSON.parse(await readFile(path, 'utf8')) as Record<string, unknown> | null
    const { in_force: name, stronger, parents } = value ?? {}
    const in_force = CONTAINMENTS.find((known) => known === name)
    return in_force === undefined || !isTexts(parents) || !isStronger(stronger) ? null : { in_force, stronger, parents }
  } catch {
    return null
  }
}

export const writeContainmentRecord = async (path: string, record: ContainmentRecord): Promise<void> =>
  writeFileAtomic(path, `${JSON.stringify(record)}\n`)

/** Processes that bwrap adds to a run, which are itself and the init of the namespace. */
const NAMESPACE_PROCESSES = 2

const REMEDIES: Readonly<Record<Containment, string>> = {
  cgroup: 'run the daemon as root, or in a unit with Delegate=yes and without ProtectControlGroups=; or set containment = "auto"',
  pid_namespace: 'install bubblewrap and allow its namespaces (no RestrictNamespaces= in the unit); or set containment = "auto"',
  group: '',
}

/** Without root, only cgroup.kill ends a program that changed its user (setuid), and groups of threads do not have it. */
const mayKillAll = (): boolean => process.geteuid?.() === 0

/** The error for a limit of a sandbox that cannot be enforced. */
const unbounded = (key: keyof SandboxBounds, why: string): string =>
  `${key} cannot be enforced: ${why}; run this as root, or where control groups are delegated (systemd-run --user --scope -p Delegate=yes …), or take ${key} out of [tools.exec.sandbox]`

/** In the data directory. */
export const CONTAINMENT_FILE = 'containment.json'

export type TreeOpening =
  | { readonly kind: 'open'; readonly tree: ProcessTree; readonly inNamespace: boolean }
  | { readonly kind: 'failed'; readonly detail: string }

/** Limits of a sandbox. If one cannot be enforced, the run is refused. */
type SandboxBounds = Pick<SandboxGrant, 'max_memory_bytes' | 'max_processes'>

/** Creates process trees. */
export type ProcessTreeSource = Pick<ProcessTrees, 'open' | 'sandboxSupport'>

export interface ProcessTreesDeps {
  readonly cleanup: Pick<CleanupProcess, 'watchGroups' | 'watchMarks'> | null
  readonly log: Pick<Logger, 'warn'>
}

export interface ProcessTreesInit {
  readonly choice: ContainmentChoice
  /** Directory of the record, after which the groups are named. Null means no record, and groups named after this process. */
  readonly dataDir: string | null
  /** Ends leftovers of earlier starts. By default true if there is a data directory. */
  readonly endsLeftovers?: boolean
  /** Limits of later sandboxes. Memory is tried before the first run, because it cannot be limited once runs use groups of threads. */
  readonly sandbox?: SandboxBounds | undefined
  /** Parents of new control groups. By default below our own groups. */
  readonly places?: readonly CgroupLocation[]
}

/** Creates process trees with the strongest containment that was configured and works here. */
export class ProcessTrees implements Startable {
  readonly #deps: ProcessTreesDeps
  readonly #file: string | null
  readonly #cgroups: Cgroups
  readonly #markPrefix = newMarkPrefix()
  readonly #sharing = new TimeSlicer({ clock: systemClock })
  readonly #search = new MarkSearch({ sharing: this.#sharing })
  #inForce: Containment = 'group'
  /** Why control groups cannot enforce a limit, as tried once, or null if they can. */
  readonly #limits = new Map<LimitController, string | null>()
  readonly #sandboxes = new SandboxProbe()
  #stronger: readonly NotInForce[] = []

  private constructor(deps: ProcessTreesDeps, init: { file: string | null; cgroups: Cgroups }) {
    this.#deps = deps
    this.#file = init.file
    this.#cgroups = init.cgroups
  }

  /** Ends leftovers of a crash and tries what this machine supports. Throws `bad_config` if the configured containment is impossible. */
  static async open(
    deps: ProcessTreesDeps,
    { choice, dataDir, endsLeftovers = dataDir !== null, sandbox, places = findCgroupPlaces() }: ProcessTreesInit,
  ): Promise<ProcessTrees> {
    const names = await parentNamesOf(dataDir)
    const file = dataDir === null ? null : join(dataDir, CONTAINMENT_FILE)
    const trees = new ProcessTrees(deps, { file, cgroups: new Cgroups({ parentName: names.name, places, whole: !mayKillAll() }) })
    if (endsLeftovers) await trees.#endLeftovers(names)
    trees.#watch()
    try {
      await trees.#choose(choice)
      if ((sandbox?.max_memory_bytes ?? null) !== null) await trees.#limitProblem('memory')
      await trees.#record()
    } catch (error) {
      await trees.stop()
      throw error
    }
    return trees
  }

  get inForce(): Containment {
    return this.#inForce
  }

  /** Stronger kinds, and why they are not in force. */
  get stronger(): readonly NotInForce[] {
    return this.#stronger
  }

  /** True if a control group can limit processes. Call it after `sandboxSupport`. */
  get countsProcesses(): boolean {
    return this.#limits.get('pids') === null
  }

  /** Control groups that may hold runs. */
  get groups(): readonly string[] {
    return this.#cgroups.parents
  }

  /** Tries the restrictions of an ACL entry on this machine, as the user that it names. */
  readonly judge: EnforcementProbe = async (confinement) => {
    const found: Unenforceable[] = []
    const note = (key: keyof Confinement, why: string | null): void => {
      if (why !== null) found.push({ key, why })
    }
    const { contain, max_memory_bytes, max_processes, run_as } = confinement
    if (contain === 'required' && this.#inForce === 'group' && !needsNamespace(confinement)) note('contain', this.#weakness())
    if (max_memory_bytes !== null) note('max_memory_bytes', await this.#limitProblem('memory'))
    if (max_processes !== null) note('max_processes', await this.#limitProblem('pids'))
    for (const { key, tool } of toolsFor(confinement)) {
      const lookup = findTool(tool)
      if ('problem' in lookup) note(key, lookup.problem)
    }
    if (run_as !== null) note('run_as', accountProblem(run_as))
    if (run_as === null || accountProblem(run_as) === null) await this.#judgeNamespace(confinement, note)
    return found
  }

  /** Tries the needs of a sandbox. Call it before `open` for a permit with a sandbox. */
  async sandboxSupport(grant: SandboxNeed & SandboxBounds): Promise<SandboxSupport> {
    const pids = await this.#limitProblem('pids')
    const memory = grant.max_memory_bytes === null ? null : await this.#limitProblem('memory')
    if (memory !== null) return { kind: 'impossible', problem: unbounded('max_memory_bytes', memory) }
    if (pids !== null && grant.max_processes !== null) return { kind: 'impossible', problem: unbounded('max_processes', pids) }
    return this.#sandboxes.support(grant)
  }

  /** Creates the process tree of one run. Fails if required containment or limits are impossible. */
  open(permit: Pick<Permit, 'confinement' | 'sandbox'>): TreeOpening {
    const { confinement, sandbox } = permit
    const { contain } = confinement
    const memory = confinement.max_memory_bytes ?? sandbox?.max_memory_bytes ?? null
    const asked = confinement.max_processes ?? sandbox?.max_processes ?? null
    const inNamespace = this.#inForce === 'pid_namespace' || needsNamespace(confinement) || sandbox !== null
    const most = asked ?? (sandbox !== null && this.countsProcesses ? DEFAULT_SANDBOX_PROCESSES : null)
    const processes = most === null ? null : most + (inNamespace ? NAMESPACE_PROCESSES : 0)
    const limited = memory !== null || asked !== null
    const hold = this.#inForce === 'cgroup'
    let leaf: CgroupLeaf | null = null
    try {
      if (hold || limited || processes !== null) leaf = this.#cgroups.makeLeaf({ hold, limits: { memory, processes } })
    } catch (error) {
      const detail = `no control group could be made: ${errorText(error)}`
      if (limited || (contain === 'required' && !inNamespace)) return { kind: 'failed', detail }
      this.#deps.log.warn({ error: errorText(error) }, 'a run has no control group, which would hold it together or bound it')
    }
    const containment = inNamespace ? 'pid_namespace' : hold && leaf !== null ? 'cgroup' : 'group'
    if (containment === 'group' && contain === 'required') return { kind: 'failed', detail: 'no strong containment is in force' }
    const mark = containment === 'group' ? { text: newMark(this.#markPrefix), search: this.#search, forks: this.#search.forksNow } : null
    return {
      kind: 'open',
      tree: new ProcessTree({ containment, leaf, mark, sharing: this.#sharing, onStuck: () => this.#loseGroups() }),
      inNamespace,
    }
  }

  /** Removes empty groups. The next start removes the others. */
  async stop(): Promise<void> {
    this.#cgroups.close()
    if (this.#file !== null) await rm(this.#file, { force: true })
  }

  /** From now on, runs that need a control group fail, and other runs get no group. */
  #loseGroups(): void {
    const why = 'a run was put into a control group that the daemon could not leave again'
    this.#deps.log.warn({ why }, 'no control groups are made any more')
    if (this.#inForce !== 'cgroup') return
    this.#inForce = 'group'
    this.#stronger = [{ containment: 'cgroup', why }]
    this.#record().catch((error: unknown) => this.#deps.log.warn({ error: errorText(error) }, 'the containment could not be recorded'))
  }

  async #limitProblem(controller: LimitController): Promise<string | null> {
    const known = this.#limits.get(controller)
    if (known !== undefined) return known
    const problem = await this.#cgroups.limitProblem(controller)
    this.#limits.set(controller, problem)
    return problem
  }

  #weakness(): string {
    return this.#stronger.map(({ containment, why }) => `${containment}: ${why}`).join('; ')
  }

  async #judgeNamespace(confinement: Confinement, note: (key: keyof Confinement, why: string | null) => void): Promise<void> {
    if (!needsNamespace(confinement) && this.#inForce !== 'pid_namespace') return
    const lookup = confinement.run_as === null ? null : findAccount(confinement.run_as)
    const account: Account | null = lookup?.kind === 'found' ? lookup.account : null
    const key = confinement.read_only ? 'read_only' : confinement.no_network ? 'no_network' : 'run_as'
    if (needsNamespace(confinement) || account !== null) note(key, await namespaceProblem(confinement, account))
  }

  async #choose(choice: ContainmentChoice): Promise<void> {
    const problem =
      choice === 'group' ? 'containment = "group" is configured' : await this.#problemOf(choice === 'auto' ? 'cgroup' : choice)
    if (problem === null) {
      this.#inForce = choice === 'pid_namespace' ? 'pid_namespace' : 'cgroup'
      if (choice === 'pid_namespace') this.#stronger = [{ containment: 'cgroup', why: 'containment = "pid_namespace" is configured' }]
      return
    }
    if (choice === 'cgroup' || choice === 'pid_namespace')
      throw new AppError('bad_config', `containment = "${choice}" does not work on this machine: ${problem}; ${REMEDIES[choice]}`)
    this.#stronger = [
      { containment: 'cgroup', why: problem },
      {
        containment: 'pid_namespace',
        why: choice === 'group' ? problem : 'only with containment = "pid_namespace", because it costs more',
      },
    ]
  }

  async #problemOf(containment: 'cgroup' | 'pid_namespace'): Promise<string | null> {
    return containment === 'cgroup' ? this.#cgroups.holdingProblem() : namespaceProblem({ no_network: false, read_only: false }, null)
  }

  async #endLeftovers(names: ParentNames): Promise<void> {
    const left = await endLeftovers(this.#cgroups.parents, names)
    if (left.length > 0) this.#deps.log.warn({ left }, 'a process of an earlier daemon could not be killed')
  }

  /** Registers the groups and marks with the cleanup process before the first run. */
  #watch(): void {
    this.#deps.cleanup?.watchGroups(this.#cgroups.parents)
    this.#deps.cleanup?.watchMarks(this.#markPrefix)
  }

  async #record(): Promise<void> {
    if (this.#file === null) return
    await writeContainmentRecord(this.#file, { in_force: this.#inForce, stronger: this.#stronger, parents: this.#cgroups.parents })
  }
}
