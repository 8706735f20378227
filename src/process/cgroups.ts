import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { errorText } from '../base/errors.ts'
import { findExecutable } from '../policy/executable.ts'
import { Hierarchy, type LimitController } from './cgroup-hierarchy.ts'
import { CgroupLeaf, type LeafLimits } from './cgroup-leaf.ts'
import type { CgroupPlace } from './cgroup-places.ts'
import { PROBE_MS } from './namespace-probe.ts'

/** How the memory of a probe is limited: enough for any `true`. */
const PROBE_MEMORY_BYTES = 64 * 1024 * 1024

const UNLIMITED: LeafLimits = { memory: null, processes: null }
/** More than a program that waits has, which the probe is. */
const PROBE_PROCESSES = 16

/** What a leaf is made for. */
export interface LeafNeed {
  /** To hold the run together: version 2. */
  readonly hold: boolean
  readonly limits: LeafLimits
}

/** The control groups that this host lets us have, as tried. */
export class Cgroups {
  readonly #holding: Hierarchy | null
  readonly #places: readonly Hierarchy[]
  readonly #limiting: Partial<Record<LimitController, Hierarchy>> = {}
  #next = 1

  /** `parentName`: what the parent of all leaves is called, in every hierarchy. `whole`: leaves that the kernel kills, whoever their members are. */
  constructor(init: { parentName: string; places: readonly CgroupPlace[]; whole?: boolean }) {
    this.#places = init.places.map((place) => new Hierarchy(place, init))
    this.#holding = this.#places.find(({ version }) => version === 2) ?? null
  }

  /** The parents of leaves, made or not. */
  get parents(): string[] {
    return this.#places.filter((hierarchy) => hierarchy === this.#holding || hierarchy.limits.size > 0).map(({ parent }) => parent)
  }

  /** Makes a leaf, goes in, starts a program, comes out, kills and removes. Says why that does not work. */
  async holdingProblem(): Promise<string | null> {
    if (this.#holding === null) return 'no cgroup version 2 is mounted'
    const problem = await this.#try([this.#holding], UNLIMITED)
    return problem !== null && this.#holding.goWhole() ? this.#try([this.#holding], UNLIMITED) : problem
  }

  /** The same for a leaf with one limit; the hierarchy that has it is kept in mind. */
  async limitProblem(controller: LimitController): Promise<string | null> {
    if (this.#limiting[controller] !== undefined) return null
    const old = this.#places.find(({ version, limits }) => version === 1 && limits.has(controller))
    const hierarchy = old ?? this.#holding
    if (hierarchy === null) return `no ${controller} controller is mounted`
    const problem =
      hierarchy.enable(controller) ??
      (await this.#try(
        [hierarchy],
        controller === 'memory' ? { ...UNLIMITED, memory: PROBE_MEMORY_BYTES } : { ...UNLIMITED, processes: PROBE_PROCESSES },
      ))
    if (problem === null) this.#limiting[controller] = hierarchy
    return problem
  }

  /** Throws what kept it from being made. */
  makeLeaf({ hold, limits }: LeafNeed): CgroupLeaf {
    const hierarchies = new Set<Hierarchy>()
    const add = (hierarchy: Hierarchy | null | undefined): void => {
      if (!hierarchy) throw new Error('there is no control group for it')
      hierarchies.add(hierarchy)
    }
    if (hold) add(this.#holding)
    if (limits.memory !== null) add(this.#limiting.memory)
    if (limits.processes !== null) add(this.#limiting.pids)
    return this.#leafIn([...hierarchies], limits)
  }

  /** Removes what is empty. */
  close(): void {
    for (const hierarchy of this.#places) hierarchy.close()
  }

  #leafIn(hierarchies: readonly Hierarchy[], limits: LeafLimits): CgroupLeaf {
    return new CgroupLeaf(hierarchies, { name: `run-${this.#next++}`, limits })
  }

  async #try(hierarchies: readonly Hierarchy[], limits: LeafLimits): Promise<string | null> {
    const lookup = findExecutable('cat')
    if (lookup.kind !== 'found') return lookup.detail
    let leaf: CgroupLeaf
    try {
      leaf = this.#leafIn(hierarchies, limits)
    } catch (error) {
      return errorText(error)
    }
    const problem = await tryLeaf(leaf, lookup.executable.path).catch(errorText)
    return (await leaf.end()) ? problem : `${problem ?? 'a leaf'} could not be removed`
  }
}

/** `program` waits for its stdin, so that it lives until it is killed. */
const tryLeaf = async (leaf: CgroupLeaf, program: string): Promise<string | null> => {
  const child = leaf.enter(() => spawn(program, [], { env: {}, stdio: ['pipe', 'ignore', 'ignore'], detached: true }))
  child.stdin.on('error', () => {})
  const exit = once(child, 'exit', { signal: AbortSignal.timeout(PROBE_MS) })
  // Where it is not waited for, the leaf's end says enough.
  exit.catch(() => {})
  if (leaf.isStuck) {
    child.kill('SIGKILL')
    await exit
    return 'we cannot come out of a leaf again'
  }
  try {
    leaf.confine()
  } finally {
    leaf.kill()
  }
  const [, signal] = (await exit) as [number | null, string | null]
  return signal === 'SIGKILL' ? null : 'what was started in a leaf did not end with it'
}
