import { createHash, randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { AppError, isAppError, nextOf } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { shown } from '../../base/visible-text.ts'
import { Fanout, type FanoutPlan, type HostRun } from '../../exec/fleet/fanout.ts'
import { type FanoutHost, NOT_BEGUN, hostOfError } from '../../exec/fleet/host-end.ts'
import type { MatchedTarget } from '../../executor-api/local.ts'
import { FANOUT_ENDS, type FanoutEnd, type FanoutHostJson, NO_FACTS, failuresAllowed } from '../../protocol/api/fanout.ts'
import { foldNodeSet } from '../../protocol/hosts/node-set.ts'
import { type Sent, count, list, oneOf, optional, orNull, record, text } from '../../protocol/json-table.ts'
import {
  MAX_FLEETS_ENDED,
  MAX_FLEETS_GOING,
  MAX_FLEET_DETAIL,
  MAX_FLEET_HOSTS,
  MAX_FLEET_PARALLEL,
  MAX_FLEET_QUESTIONS,
} from '../../protocol/limits/fleet.ts'
import { FLEET_ANSWER, FleetAnswers } from './fleet-answers.ts'
import type { RunEnd } from './run-end.ts'
import { type ToolRequest, requestHash } from './tool-request.ts'
import type { ToolRun, View } from './tool-run.ts'
import type { ToolRuns } from './tool-runs.ts'

interface Ending {
  readonly end: FanoutEnd
  /** An error code or a denial reason. */
  readonly error?: string | null
  readonly message?: string | null
  readonly incomplete?: boolean
}

/** Errors of a run that was cancelled before it reached its target. */
const CANCELLED_BEFORE = ['shutting_down', 'conflict', 'peer_unreachable'] as const
/** Errors by which this machine denies a run; other errors mean that the host was not reached. */
const SAID_NO = ['command_denied', 'bad_request'] as const

const refused = ({ refusal }: ToolRun, { denial_reason, launch_error, denial_detail }: RunEnd, weCancelled: boolean): Ending => {
  const code = refusal?.code ?? 'internal'
  if (weCancelled && CANCELLED_BEFORE.some((one) => one === code)) return { end: 'cancelled' }
  const why = refusal?.data['reason']
  const reason = denial_reason ?? (typeof why === 'string' ? why : code)
  const message = denial_detail ?? launch_error?.message ?? null
  if (denial_reason !== null || SAID_NO.some((one) => isAppError(refusal, one))) return { end: 'denied', error: reason, message }
  return { end: 'unreachable', error: code, message }
}

const endingOf = (run: ToolRun, end: RunEnd, weCancelled: boolean): Ending => {
  if (run.refusal !== null) return refused(run, end, weCancelled)
  const { exit_code, signal, interruption, launch_error } = end
  // The run ended by itself before the cancellation arrived.
  if (weCancelled && run.cancelledThere && interruption === null) return { end: 'cancelled' }
  if (exit_code !== null || signal !== null) return { end: 'ran', incomplete: interruption !== null || run.isCut, message: interruption }
  if (interruption !== null) return { end: 'unknown', message: interruption }
  if (weCancelled) return { end: 'cancelled' }
  return { end: 'denied', error: launch_error === null ? null : 'spawn_failed', message: launch_error?.message ?? NOT_BEGUN }
}

/** The end of a host, from its ended run. `weCancelled`: this fan-out cancelled the run. */
export const hostOfRun = ({ host, agent_id }: FanoutHost, run: ToolRun, weCancelled: boolean): FanoutHostJson => {
  const known = run.end
  const ending: Ending = known === null ? { end: 'unknown' } : endingOf(run, known, weCancelled)
  const { end, error = null, message = null, incomplete = false } = ending
  const next = end === 'cancelled' ? {} : nextOf(run.refusal)
  const facts = {
    ...NO_FACTS,
    request_id: null,
    host,
    agent_id,
    end,
    error,
    incomplete,
    code: end === 'ran' ? (known?.exit_code ?? null) : null,
  }
  return { ...facts, ...(message !== null && { message }), ...next }
}

/** Text about a host, cut and cleaned. */
const told = (text: string | null): string | null => text && shown(text).slice(0, MAX_FLEET_DETAIL).toWellFormed()

/** A request to run one command on many hosts. */
export interface ToolFleetRequest {
  /** The command, without a target. */
  readonly command: ToolRequest
  /** The hosts as the client named them. */
  readonly words: readonly string[]
  readonly plan: Pick<FanoutPlan, 'parallel' | 'canary' | 'deadlineMs'> & { readonly maxFailures: number | string | null }
  readonly view: View
  /** Maximum bytes of text in an answer. */
  readonly total: number
}

/** Equal for requests with the same command and host terms; hex. */
export const fleetHash = ({ command, words, plan }: ToolFleetRequest): string =>
  createHash('sha256')
    .update(JSON.stringify([requestHash(command), words, plan.canary, plan.maxFailures, plan.deadlineMs]))
    .digest('hex')

/** Why hosts did not run. */
const REASON = {
  end: oneOf(FANOUT_ENDS),
  reason: orNull(text),
  detail: orNull(text).says('text for the first of these hosts'),
  next: orNull(text).says('what to do next, for the first of these hosts'),
}
type NotRun = Sent<typeof REASON> & { readonly hosts: string[] }

/** The state of a fan-out. */
export const FLEET_RESULT = {
  asked: count.says('number of hosts; the sum of the next six counts and going'),
  ran: count,
  denied: count.says('hosts where it did not run because a policy of this machine or of the target, or an approver, refused it'),
  unreachable: count.says('hosts that were not reached; it did not run'),
  not_started: count.says('hosts that were not started'),
  cancelled: count,
  unknown: count.says('hosts where it may have run'),
  failed: count.says('hosts in ran with another exit status, a signal, or missing or cut output'),
  going: count.says('hosts without a result yet'),
  running: orNull(text).says('hosts where it is running or waits for an approval, as a node set; null if none'),
  answers: list(record(FLEET_ANSWER)).says('each distinct answer once; sorted by number of hosts, then by the order of hosts'),
  not_run: list(record({ end: REASON.end, hosts: text, count, reason: REASON.reason, detail: REASON.detail, next: REASON.next })).says(
    'every host that did not run, with the reason',
  ),
  approvals: optional(list(record({ host: text, question_id: orNull(text), expires_at: text }))).says('pending approval requests'),
}
export type FleetResult = Sent<typeof FLEET_RESULT>

export interface ToolFleetComponents {
  readonly clock: Clock
  readonly runs: ToolRuns
  /** Limits the concurrent hosts of all fan-outs. */
  readonly slots: Semaphore
}

export interface ToolFleetInit {
  readonly id: string
  readonly request: ToolFleetRequest
  readonly hosts: readonly MatchedTarget[]
  readonly plan: FanoutPlan
  readonly key: string | null
}

/** One command for many hosts. Each host is a run with its own session, decision and log lines, so every rule for one target holds for it. */
export class ToolFleet {
  readonly id: string
  readonly request: ToolFleetRequest
  readonly parallel: number
  /** Settles when each host has ended. */
  readonly ended: Promise<void>
  /** Number of waiting calls whose cancellation ends it. */
  owners = 0
  readonly #deps: ToolFleetComponents
  readonly #init: ToolFleetInit
  readonly #fanout: Fanout
  readonly #answers: FleetAnswers
  readonly #notRun = new Map<string, NotRun>()
  readonly #targets: ReadonlyMap<string, string>
  /** Running hosts by name. */
  readonly #going = new Map<string, ToolRun>()
  readonly #began: number
  #took: number | null = null

  constructor(deps: ToolFleetComponents, init: ToolFleetInit) {
    const { clock, slots } = deps
    this.id = init.id
    this.request = init.request
    this.parallel = init.plan.parallel
    this.#deps = deps
    this.#init = init
    this.#answers = new FleetAnswers({ view: init.request.view, hosts: init.hosts.map(({ host }) => host) })
    this.#targets = new Map(init.hosts.map(({ agent_id, target }) => [agent_id, target]))
    this.#began = clock.monotonic()
    const parts = { clock, slots, start: (host: FanoutHost) => this.#start(host), ended: (host: FanoutHostJson) => this.#emit(host) }
    this.#fanout = new Fanout(parts, init.plan)
    this.ended = this.#fanout.run().then(() => this.#settle())
  }

  #settle(): void {
    this.#took = this.#deps.clock.monotonic() - this.#began
    this.#answers.settle(this.request.total)
  }

  get over(): boolean {
    return this.#took !== null
  }

  /** Starts no more hosts and ends the running ones. */
  cancel(reason: 'fanout_cancelled' | 'shutting_down' = 'fanout_cancelled'): void {
    this.#fanout.stop(reason)
  }

  /** Duration so far, in milliseconds. */
  get duration(): number {
    return Math.round(this.#took ?? this.#deps.clock.monotonic() - this.#began)
  }

  /** Progress text for waiting calls. */
  get progress(): string {
    const running = [...this.#going.values()]
    const waiting = running.filter(({ approval }) => approval !== null).length
    const rest = waiting === 0 ? '' : `, ${waiting} of them waiting for an approval`
    const { ended, unsuccessful } = this.#fanout.sums
    return `${ended} of ${this.#init.hosts.length} hosts have ended, ${unsuccessful} of them without success; ${running.length} running${rest}`
  }

  result(): FleetResult {
    const { sums } = this.#fanout
    const { fanout_id: _id, ok: _ok, asked, ...ends } = sums.ledger(this.id, this.#init.hosts.length)
    const { runs } = this.#deps
    const questions = [...this.#going].flatMap(([host, { approval }]) => (approval === null ? [] : [{ host, ...approval }]))
    return {
      asked,
      ...ends,
      going: asked - sums.ended,
      running: this.#going.size === 0 ? null : foldNodeSet([...this.#going.keys()]),
      answers: this.#answers.list(this.request.total, (run) => runs.has(run.id)),
      not_run: [...this.#notRun.values()].map(({ hosts, ...why }) => ({ ...why, hosts: foldNodeSet(hosts), count: hosts.length })),
      ...(questions.length === 0 ? {} : { approvals: questions.slice(0, MAX_FLEET_QUESTIONS) }),
    }
  }

  #start(host: FanoutHost): HostRun {
    const { runs } = this.#deps
    const { request, key } = this.#init
    const target = this.#targets.get(host.agent_id)!
    try {
      // Each host has its own key, so that a repeated call runs nothing twice.
      const run = runs.start({ ...request.command, target }, key === null ? null : JSON.stringify([key, host.agent_id]))
      return this.#follow(host, run)
    } catch (error) {
      return { ended: Promise.resolve(hostOfError(host, null, error, false)), cancel: () => undefined }
    }
  }

  #follow(host: FanoutHost, run: ToolRun): HostRun {
    const { runs } = this.#deps
    let cancelled = false
    this.#going.set(host.host, run)
    const over = async (): Promise<FanoutHostJson> => {
      await run.ended
      await runs.settled(run).catch(() => undefined)
      this.#going.delete(host.host)
      const ended = hostOfRun(host, run, cancelled)
      const isKept = ended.end === 'ran' && this.#answers.add(host.host, run, ended.incomplete)
      if (!isKept) runs.forget(run)
      return ended
    }
    const cancel = (): void => {
      cancelled = true
      run.cancel()
    }
    return { ended: over(), cancel }
  }

  #emit(ended: FanoutHostJson): void {
    const { end, host, error, message = null, next = null } = ended
    if (end === 'ran') return
    const key = JSON.stringify([end, error])
    const known = this.#notRun.get(key)
    if (known !== undefined) known.hosts.push(host)
    else
      this.#notRun.set(key, {
        end,
        hosts: [host],
        reason: error,
        detail: told(message),
        next: told(next),
      })
  }
}

export interface ToolFleetsComponents {
  readonly runs: ToolRuns
  readonly clock: Clock
}

const otherCommand = (): AppError =>
  new AppError('conflict', 'idempotency_key: this key was used with another command; use a new key for a new command')

/** The fan-outs of one client. */
export class ToolFleets {
  readonly #deps: ToolFleetsComponents
  /** Limits the concurrent hosts of all fan-outs, because each needs a session. Null until the first fan-out sets the limit. */
  #slots: Semaphore | null = null
  /** Unique per server process. */
  readonly #prefix = `fleet_${randomBytes(4).toString('hex')}_`
  /** Oldest first. */
  readonly #fleets = new Map<string, ToolFleet>()
  readonly #byKey = new Map<string, ToolFleet>()
  #count = 0
  #closed = false

  constructor(deps: ToolFleetsComponents) {
    this.#deps = deps
  }

  /** Throws `unknown_run`. */
  get(id: string): ToolFleet {
    const fleet = this.#fleets.get(id)
    if (fleet === undefined)
      throw new AppError('unknown_run', `fleet_id: no command on many hosts has the ID ${JSON.stringify(id.slice(0, 80))}`)
    return fleet
  }

  /** The fan-out that this key started, or null is known. Throws `conflict` if it ran another command. */
  withKey(key: string | null, request: ToolFleetRequest): ToolFleet | null {
    const known = key === null ? undefined : this.#byKey.get(key)
    if (known !== undefined && fleetHash(known.request) !== fleetHash(request)) throw otherCommand()
    return known ?? null
  }

  /**
   * Starts a fan-out. `places`: maximum number of concurrent hosts of all fan-outs; the same in each call. Throws `bad_request`,
   * `rate_limited`.
   */
  start(request: ToolFleetRequest, hosts: readonly MatchedTarget[], { key, places }: { key: string | null; places: number }): ToolFleet {
    const { parallel, canary, maxFailures, deadlineMs } = request.plan
    if (hosts.length > MAX_FLEET_HOSTS)
      throw new AppError('bad_request', `hosts: these host words select ${hosts.length} hosts; the limit of one call is ${MAX_FLEET_HOSTS}`)
    if (this.#closed) throw new AppError('shutting_down')
    const going = [...this.#fleets.values()].filter(({ over }) => !over).length
    if (going >= MAX_FLEETS_GOING)
      throw new AppError('rate_limited', `${going} commands on many hosts are running, which is the limit: wait until one has ended`)
    const atOnce = Math.max(1, Math.min(MAX_FLEET_PARALLEL, places))
    this.#slots ??= new Semaphore({ limit: atOnce })
    const plan = {
      fanout_id: `${this.#prefix}${++this.#count}`,
      hosts: hosts.map(({ host, agent_id }) => ({ host, agent_id })),
      parallel: Math.min(parallel, atOnce),
      canary,
      maxFailures: maxFailures === null ? null : failuresAllowed(maxFailures, hosts.length),
      deadlineMs,
    }
    const fleet = new ToolFleet({ ...this.#deps, slots: this.#slots }, { id: plan.fanout_id, request, hosts, plan, key })
    this.#fleets.set(fleet.id, fleet)
    if (key !== null) this.#byKey.set(key, fleet)
    this.#forgetOld()
    return fleet
  }

  /** Starts no more hosts and ends the running ones. */
  close(): void {
    this.#closed = true
    for (const fleet of this.#fleets.values()) if (!fleet.over) fleet.cancel('shutting_down')
  }

  #forgetOld(): void {
    const ended = [...this.#fleets.values()].filter(({ over }) => over)
    for (const fleet of ended.slice(0, Math.max(ended.length - MAX_FLEETS_ENDED, 0))) {
      this.#fleets.delete(fleet.id)
      for (const [key, one] of this.#byKey) if (one === fleet) this.#byKey.delete(key)
    }
  }
}
