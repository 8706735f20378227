import { createHash, randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import { KILLED_BY } from '../../src/programs/x0x/outcome.ts'
import type { RunResultJson } from '../../src/protocol/api/run-events.ts'
import type { RunningCli } from '../../test/support/mesh-of-daemons.ts'
import type { Dice } from './dice.ts'
import { UNIT, type Requester, type World } from './world.ts'

/** Upper bound of every answer: the longest run, its grace period, the wait for a missing Exit, and a stopped process. */
const ANSWER_WITHIN_MS = 90_000
const LONGEST_RUN_MS = 20_000
const MIB = 1024 * 1024
/** Exit statuses of the command line itself. The programs of this test never use them. */
const CLI_FAILURES: readonly number[] = [1, 2, 70]

/** A run and its expected result. */
export interface Plan {
  readonly tag: number
  readonly name: string
  readonly argv: readonly string[]
  readonly stdin: Buffer | null
  /** Null if the program never ends by itself. */
  readonly code: number | null
  readonly stdout: Buffer
  readonly timeoutMs: number
}

/** The answer that a client got. */
export type Answer =
  | { readonly how: 'ended'; readonly code: number; readonly stdout: Buffer; readonly stderr: string; readonly byForce: boolean }
  | { readonly how: 'killed'; readonly signal: number; readonly stdout: Buffer; readonly byForce: boolean }
  | { readonly how: 'denied' | 'incomplete' | 'refused' | 'forced' | 'gone' | 'hung'; readonly why: string }

/** A run whose client still waits, with what a trouble can do to it. */
export interface Active {
  readonly plan: Plan
  readonly requester: Requester
  readonly cli: RunningCli | null
  readonly requestId: string | null
  /** Makes the client disappear. */
  hangUp(): void
}

export interface Asked {
  readonly plan: Plan
  readonly answer: Answer
}

const ENDS: readonly string[] = [...KILLED_BY, 'cancelled']
/** Tag of the run that a journal line with this argv belongs to. */
export const tagOf = (argv: unknown): number => Number((argv as readonly string[]).at(-1))

const sumLine = (data: Buffer): Buffer => Buffer.from(`${createHash('sha256').update(data).digest('hex')}  -\n`)

/** Creates random runs, requests them and keeps the answers. */
export class Requests {
  readonly active = new Set<Active>()
  readonly asked: Asked[] = []
  /** Tags of runs whose program a trouble killed. */
  readonly felled = new Set<number>()
  readonly #world: World
  readonly #dice: Dice
  #tag = 0

  constructor(world: World, dice: Dice) {
    this.#world = world
    this.#dice = dice
  }

  /** Requests one run after another until `goesOn` returns false. */
  async lane(requester: Requester, goesOn: () => boolean): Promise<void> {
    while (goesOn()) {
      const { how } = await this.ask(requester, this.#draw(), this.#dice.chance(0.35))
      // Waits a moment after a failure, so that a client does not repeat failing requests in a tight loop.
      if (how !== 'ended' && how !== 'killed') await sleep(this.#dice.between(50, 250))
    }
  }

  /** Plan for one run of this program. */
  plan(name: string, args: readonly number[], expected: Partial<Plan> = {}): Plan {
    const tag = ++this.#tag
    const file = name === 'true' ? '/bin/true' : this.#world.program(name)
    const argv = [file, ...args.map(String), String(tag)]
    return { tag, name, argv, stdin: null, code: 0, stdout: Buffer.alloc(0), timeoutMs: LONGEST_RUN_MS, ...expected }
  }

  async ask(requester: Requester, plan: Plan, byCli: boolean): Promise<Answer> {
    const answer = await (byCli ? this.#askCli(requester, plan) : this.#askRest(requester, plan))
    this.asked.push({ plan, answer })
    return answer
  }

  #draw(): Plan {
    const dice = this.#dice
    const { data, strong } = this.#world
    // No status that the command line uses for itself.
    const code = dice.chance(0.5) ? 0 : dice.between(100, 109)
    const tenths = dice.between(1, 20)
    switch (dice.pick(['true', 'true', 'out', 'out', 'drip', 'sum', 'sum', 'nap', 'deaf', strong ? 'escape' : 'nap'])) {
      case 'out': {
        const units = dice.between(1, dice.pick([20, 20_000, 600_000])!)
        return this.plan('out', [units, code + 1], { code, stdout: data.subarray(0, units * UNIT) })
      }
      case 'drip': {
        const units = dice.between(1, dice.pick([2, 13_000, 50_000])!)
        const stdout = Buffer.concat(Array.from({ length: 8 }, () => data.subarray(0, units * UNIT)))
        return this.plan('drip', [units, code + 1], { code, stdout })
      }
      case 'sum': {
        const from = dice.between(0, data.length)
        const stdin = data.subarray(from, dice.between(from, Math.min(data.length, from + MIB)))
        return this.plan('sum', [code + 1], { code, stdin, stdout: sumLine(stdin) })
      }
      case 'nap':
        return this.plan('nap', [tenths, code + 1], { code })
      case 'escape':
        return this.plan('escape', [tenths, code + 1], { code, stdout: Buffer.from('left\n') })
      case 'deaf':
        return this.plan('deaf', [], { code: null, stdout: Buffer.from('up\n'), timeoutMs: dice.between(500, 3_000) })
      default:
        return this.plan('true', [])
    }
  }

  /** Waits for an answer, and reports a hang if none arrives in time. */
  async #watched(active: Active, coming: Promise<Answer>): Promise<Answer> {
    this.active.add(active)
    const patience = new AbortController()
    const hung = sleep(ANSWER_WITHIN_MS, null, { signal: patience.signal }).then(
      (): Answer => ({ how: 'hung', why: `no answer within ${ANSWER_WITHIN_MS} ms` }),
      async () => coming,
    )
    try {
      return await Promise.race([coming, hung])
    } finally {
      patience.abort()
      this.active.delete(active)
    }
  }

  async #askRest(requester: Requester, plan: Plan): Promise<Answer> {
    const leaving = new AbortController()
    const requestId: string = randomUUID()
    const body = {
      agent: 'bob',
      argv: plan.argv,
      request_id: requestId,
      timeout_ms: plan.timeoutMs,
      ...(plan.stdin === null ? {} : { stdin_b64: plan.stdin.toString('base64') }),
    }
    const coming = requester.client
      .post('/exec/run', body, { signal: leaving.signal })
      .then(answerOfJson, (error: unknown): Answer => ({ how: 'gone', why: String(error) }))
    return this.#watched({ plan, requester, cli: null, requestId, hangUp: () => leaving.abort() }, coming)
  }

  async #askCli(requester: Requester, plan: Plan): Promise<Answer> {
    const json = this.#dice.chance(0.5)
    const stdinFlags = plan.stdin === null ? [] : ['--stdin-file', '-']
    const flags = [...(json ? ['--json'] : []), 'exec', 'bob', '--timeout', String(plan.timeoutMs / 1_000), ...stdinFlags]
    const cli = requester.daemon.startCli([...flags, '--', ...plan.argv], plan.stdin === null ? {} : { stdin: plan.stdin })
    const coming = cli.finished.then(({ status, stdout, stderr }): Answer => {
      if (cli.child.signalCode !== null) return { how: 'gone', why: `the command line died of ${cli.child.signalCode}` }
      if (!json) return answerOfStatus(status, stdout, stderr)
      return stdout.length > 0 ? answerOfJson(stdout.toString()) : { how: 'refused', why: stderr.trim() }
    })
    return this.#watched({ plan, requester, cli, requestId: null, hangUp: () => void cli.child.kill('SIGKILL') }, coming)
  }
}

const answerOfJson = (text: string): Answer => {
  const result = JSON.parse(text) as RunResultJson & { error?: string; message?: string }
  if (result.error !== undefined) return { how: 'refused', why: `${result.error}: ${result.message}` }
  if (result.denial_reason !== null) return { how: 'denied', why: result.denial_reason }
  if (!result.ok || result.incomplete) return { how: 'incomplete', why: result.message ?? '' }
  const [stdout, stderr] = [Buffer.from(result.stdout_b64, 'base64'), Buffer.from(result.stderr_b64, 'base64').toString()]
  const byForce = result.truncated || result.warnings.some((kind) => ENDS.includes(kind))
  if (result.code !== null) return { how: 'ended', code: result.code, stdout, stderr, byForce }
  return { how: 'killed', signal: result.signal ?? 0, stdout, byForce }
}

/** Interprets the exit status of the command line as `x0x help exec` describes it. */
const answerOfStatus = (status: number, stdout: Buffer, stderr: string): Answer => {
  const denied = / denied .*? \((\w+)\): /.exec(stderr)?.[1]
  if (status === 255) {
    if (denied !== undefined) return { how: 'denied', why: denied }
    if (stderr.includes('incomplete')) return { how: 'incomplete', why: stderr.trim() }
    return { how: ENDS.some((kind) => stderr.includes(kind)) ? 'forced' : 'refused', why: stderr.trim() }
  }
  if (CLI_FAILURES.includes(status)) return { how: 'refused', why: stderr.trim() }
  const byForce = stderr.includes('cancelled: ')
  // The client was interrupted before any output, or twice, or could not reach its daemon. It then stopped waiting.
  const unheard = stdout.length === 0 || /^x0x: (?:interrupted|stopped waiting); /m.test(stderr)
  if (status === 130 && unheard && !byForce) return { how: 'gone', why: 'interrupted' }
  return status > 128 ? { how: 'killed', signal: status - 128, stdout, byForce } : { how: 'ended', code: status, stdout, stderr, byForce }
}

/**
 * With containment by a process group only, another program of the user can hide its environment while it ends. The warning is then
 * permitted.
 */
const MAY_BE_SAID = process.getuid?.() === 0 ? /^$/ : /^(?:x0x: warning: descendants_may_survive: .*\n?)?$/

/** The warning for a command that leaves processes behind. */
const LEFT_BEHIND = /^x0x: warning: descendants_ended: .*\n?/m

/**
 * Returns what is untrue about an answer, or null. A forced end may come after any byte. Any other answer must have the program's own end
 * and its whole output.
 */
export const untruth = ({ plan, answer }: Asked, felled: ReadonlySet<number>): string | null => {
  if (answer.how === 'hung') return answer.why
  if (answer.how !== 'ended' && answer.how !== 'killed') return null
  // If its shell is killed, sha256sum reaches the end of its input and prints the sum of the bytes so far.
  const isOtherSum = answer.how === 'killed' && plan.name === 'sum' && /^[0-9a-f]{64} {2}-\n$/.test(answer.stdout.toString('latin1'))
  const isPart = isOtherSum || plan.stdout.subarray(0, answer.stdout.length).equals(answer.stdout)
  if (!isPart) return `output that the program did not write: ${answer.stdout.length} bytes`
  if (answer.how === 'killed') {
    if (!answer.byForce && !felled.has(plan.tag)) return `signal ${answer.signal}, and nobody killed it`
    return [9, 15].includes(answer.signal) ? null : `signal ${answer.signal}`
  }
  if (answer.code !== plan.code) return `exit code ${answer.code} instead of ${plan.code}`
  if (answer.byForce) return null
  if (answer.stdout.length !== plan.stdout.length) return `${answer.stdout.length} of ${plan.stdout.length} bytes, and called whole`
  const said = plan.name === 'escape' ? answer.stderr.replace(LEFT_BEHIND, '') : answer.stderr
  return MAY_BE_SAID.test(said) ? null : `stderr: ${answer.stderr}`
}
