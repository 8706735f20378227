import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

import { birthOf } from '../../src/base/process-info.ts'
import { send } from '../../src/process/signals.ts'
import type { TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import type { Dice } from './dice.ts'
import { tagOf, type Requests } from './requests.ts'
import type { World } from './world.ts'

/**
 * Troubles that kill a process of a daemon. They happen only in the first part of the test, so that the processes at its end have seen all
 * later troubles.
 */
const FATAL = ['kill network', 'kill executor'] as const
const BEARABLE = [
  'stop network',
  'stop executor',
  'kill cli',
  'stop cli',
  'kill child',
  'stop child',
  'cut',
  'go silent',
  'refuse',
  'cancel',
  'interrupt',
  'hang up',
] as const
export const TROUBLES = [...FATAL, ...BEARABLE] as const
type Trouble = (typeof TROUBLES)[number]

/** Mostly shorter than the lease, sometimes longer. */
const SHORT_MS = [20, 1_200] as const
const LONG_MS = [4_500, 6_000] as const
const LONG_CHANCE = 0.15

/** Causes one trouble after another in random order. Each kind comes once before any comes again. */
export class Mayhem {
  readonly done = new Map<Trouble, number>()
  readonly log: string[] = []
  readonly #world: World
  readonly #requests: Requests
  readonly #dice: Dice
  readonly #began = performance.now()
  /** Stopped processes, which must be continued at the end of the test. */
  readonly #stopped = new Set<{ pid: number; born: string }>()

  constructor(world: World, requests: Requests, dice: Dice) {
    this.#world = world
    this.#requests = requests
    this.#dice = dice
  }

  /** `mayKill` says whether processes of daemons may still be killed. */
  async lane(goesOn: () => boolean, mayKill: () => boolean): Promise<void> {
    while (goesOn())
      for (const trouble of this.#dice.shuffled(TROUBLES)) {
        if (!goesOn()) return
        if (!mayKill() && FATAL.some((kind) => kind === trouble)) continue
        const victim = await this.#make(trouble)
        this.#note(trouble, victim)
        await sleep(this.#dice.between(50, 400))
      }
  }

  /** Continues all processes and lets all connections through. */
  makePeace(): void {
    for (const member of this.#stopped) this.#continue(member)
    for (const { proxy } of this.#world.requesters) {
      proxy.allow()
      // A silent connection stays silent until it is cut.
      proxy.cut()
    }
  }

  #note(trouble: Trouble, victim: string | null): void {
    this.log.push(`${((performance.now() - this.#began) / 1_000).toFixed(1)} s: ${trouble}: ${victim ?? 'nobody was there'}`)
    if (victim !== null) this.done.set(trouble, (this.done.get(trouble) ?? 0) + 1)
  }

  /** Returns the name of the victim, or null if there was none. */
  async #make(trouble: Trouble): Promise<string | null> {
    switch (trouble) {
      case 'kill network':
        return this.#killNetwork(this.#anyDaemon())
      case 'kill executor': {
        const daemon = this.#anyDaemon()
        return (await this.#world.crash(daemon)) ? daemon.name : null
      }
      case 'stop network': {
        const daemon = this.#anyDaemon()
        return this.#pause(await this.#world.networkOf(daemon), daemon.name)
      }
      case 'stop executor': {
        const daemon = this.#anyDaemon()
        return this.#pause(daemon.running ? daemon.pid : null, daemon.name)
      }
      case 'kill child':
      case 'stop child':
        return this.#meddleWithChild(trouble)
      case 'cut':
      case 'go silent':
      case 'refuse':
        return this.#meddleWithPath(trouble)
      default:
        return this.#meddleWithCaller(trouble)
    }
  }

  /** Picks bob more often than the others. */
  #anyDaemon(): TestDaemon {
    return this.#dice.chance(0.4) ? this.#world.bob : this.#dice.pick(this.#world.requesters)!.daemon
  }

  #duration(): number {
    const [least, most] = this.#dice.chance(LONG_CHANCE) ? LONG_MS : SHORT_MS
    return this.#dice.between(least, most)
  }

  async #killNetwork(daemon: TestDaemon): Promise<string | null> {
    const pid = await this.#world.networkOf(daemon)
    if (pid === null) return null
    this.#world.doom(daemon, pid)
    return send(pid, 'SIGKILL') ? daemon.name : null
  }

  /**
   * Sends SIGSTOP, and SIGCONT after a while. Checks the start time of the process, so that a later process with the same PID gets no
   * signal.
   */
  async #pause(pid: number | null, name: string): Promise<string | null> {
    const born = pid === null ? undefined : birthOf(pid)
    if (pid === null || born === undefined || !send(pid, 'SIGSTOP')) return null
    const member = { pid, born }
    this.#stopped.add(member)
    const ms = this.#duration()
    await sleep(ms)
    this.#continue(member)
    this.#stopped.delete(member)
    return `${name}, ${ms} ms`
  }

  #continue({ pid, born }: { pid: number; born: string }): void {
    if (birthOf(pid) === born) send(pid, 'SIGCONT')
  }

  /** Kills or stops the leader of a run that is still running. */
  async #meddleWithChild(trouble: 'kill child' | 'stop child'): Promise<string | null> {
    const { bob, mesh } = this.#world
    const lines = await bob.journal().catch(() => [])
    const over = new Set(lines.filter(({ event }) => event === 'exit' || event === 'lost').map(({ request_id }) => request_id))
    const tags = new Map(lines.flatMap((line) => (line.event === 'request' ? [[line.request_id, tagOf(line['argv'])]] : [])))
    const alive = lines.filter(
      ({ event, request_id, pid }) => event === 'started' && !over.has(request_id) && isOurs(Number(pid), mesh.root),
    )
    const victim = this.#dice.pick(alive)
    if (victim === undefined) return null
    const [pid, tag] = [Number(victim['pid']), tags.get(victim.request_id)!]
    if (trouble === 'stop child') return this.#pause(pid, `run ${tag}`)
    this.#requests.felled.add(tag)
    return send(pid, 'SIGKILL') ? `run ${tag}` : null
  }

  async #meddleWithPath(trouble: 'cut' | 'go silent' | 'refuse'): Promise<string | null> {
    const { daemon, proxy } = this.#dice.pick(this.#world.requesters)!
    if (proxy.connections === 0) return null
    if (trouble === 'cut') proxy.cut()
    else if (trouble === 'go silent') proxy.stall()
    else {
      proxy.refuse()
      const ms = this.#duration()
      await sleep(ms)
      proxy.allow()
      return `${daemon.name}, ${ms} ms`
    }
    return daemon.name
  }

  async #meddleWithCaller(trouble: 'kill cli' | 'stop cli' | 'cancel' | 'interrupt' | 'hang up'): Promise<string | null> {
    const byCli = trouble === 'kill cli' || trouble === 'stop cli' || trouble === 'interrupt'
    const victim = this.#dice.pick([...this.#requests.active].filter(({ cli }) => (cli !== null) === byCli))
    if (victim === undefined) return null
    const { cli, requestId, requester, plan } = victim
    const name = `run ${plan.tag} of ${requester.daemon.name}`
    if (trouble === 'stop cli') return this.#pause(cli?.child.pid ?? null, name)
    if (trouble === 'interrupt') return cli?.child.kill('SIGINT') === true ? name : null
    if (trouble === 'cancel') {
      const answer = await requester.client
        .post('/exec/cancel', { request_id: requestId }, { signal: AbortSignal.timeout(10_000) })
        .catch(() => '')
      return answer.includes('"ok":true') ? name : null
    }
    victim.hangUp()
    return name
  }
}

/** Checks that the PID still belongs to a program of this test. */
const isOurs = (pid: number, root: string): boolean => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(root)
  } catch {
    return false
  }
}
