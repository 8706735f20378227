import { MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import { stopLauncher } from './launcher.ts'
import { OpenSsh } from './openssh.ts'
import type { Mode } from './report.ts'

/** How much of everything. */
export interface Plan {
  readonly mode: Mode
  /** Calls of each contender, in turn. */
  readonly rounds: number
  /** Runs at each concurrency. */
  readonly runs: number
  /** Output of one run. */
  readonly bytes: number
  readonly peers: number
}

export const PLANS: Readonly<Record<Mode, Plan>> = {
  full: { mode: 'full', rounds: 200, runs: 1_000, bytes: 256 * 1024 * 1024, peers: 100 },
  quick: { mode: 'quick', rounds: 20, runs: 100, bytes: 32 * 1024 * 1024, peers: 20 },
}

/** Where one section is measured: daemons of its own, and an sshd if it asks for one. */
export class Stage {
  readonly plan: Plan
  readonly mesh: MeshOfDaemons
  readonly #endings: (() => Promise<void>)[] = []
  #ssh: Promise<OpenSsh> | null = null
  #closing: Promise<void> | null = null

  private constructor(plan: Plan, mesh: MeshOfDaemons) {
    this.plan = plan
    this.mesh = mesh
  }

  static async open(plan: Plan): Promise<Stage> {
    return new Stage(plan, await MeshOfDaemons.create('x0x-bench-'))
  }

  readonly openSsh = async (): Promise<OpenSsh> => {
    this.#ssh ??= OpenSsh.start()
    return this.#ssh
  }

  /** Called at the end, last one first. */
  readonly after = (ending: () => Promise<void>): void => void this.#endings.push(ending)

  /** Once: a signal may come while it is closed, and a measurement fails when it is closed under it. */
  async close(): Promise<void> {
    return (this.#closing ??= this.#close())
  }

  async #close(): Promise<void> {
    try {
      for (const ending of this.#endings.reverse()) await ending()
      await (await this.#ssh)?.stop()
    } finally {
      stopLauncher()
      await this.mesh.stop()
    }
  }
}
