import { MeshOfDaemons } from '../test/support/mesh-of-daemons.ts'
import { stopLauncher } from './launcher.ts'
import { OpenSsh } from './openssh.ts'
import type { Mode } from './report.ts'

/** Sizes of all measurements. */
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

/** The environment of one section: separate daemons, and an sshd on request. */
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

  /** Registers a function for the end. The last one runs first. */
  readonly after = (ending: () => Promise<void>): void => void this.#endings.push(ending)

  /** Closes once. A signal can arrive while it closes, and a measurement fails when it is closed. */
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
