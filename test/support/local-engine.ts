import assert from 'node:assert/strict'
import { chmod, mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import type { JournalLine } from '../../src/journal/events.ts'
import { Journal } from '../../src/journal/journal.ts'
import { systemClock, type Clock } from '../../src/base/clock.ts'
import { LocalExecutorService } from '../../src/executor/local/api.ts'
import { LocalEngine } from '../../src/executor/local/engine.ts'
import type { LocalRun } from '../../src/executor/local/run.ts'
import { LocalJournal } from '../../src/executor/local/journal.ts'
import type { TargetRunner } from '../../src/executor/local/target-runner.ts'
import type { LocalOutcome, LocalRunEvent, LocalRunSink, LocalRunRequest } from '../../src/executor-api/local.ts'
import type { LocalLimits, LocalPolicy } from '../../src/policy/local/policy.ts'
import type { DeskLink } from '../../src/desk/desk-link.ts'
import type { LifecycleFacts } from '../../src/protocol/events/lifecycle.ts'
import { CAPABILITY_NAMES } from '../../src/protocol/rexd/fields.ts'
import type { ProcessTrees } from '../../src/process/process-trees.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { wholeLines, isLifeEvent } from './journal.ts'
import { policyOf, type RulesText } from './local-policy.ts'
import { groupCells, silent } from './processes.ts'
import { patient } from './wait-limits.ts'

export interface LocalHostOptions extends RulesText {
  /** Shell programs by name. */
  readonly scripts?: Readonly<Record<string, string>>
  readonly clock?: Clock
  /** Default: process groups. */
  readonly trees?: ProcessTrees
  /** Default: a file in the host's directory. Null: none. */
  readonly journalPath?: string | null
  /** Default: none, as without a mesh. */
  readonly targets?: TargetRunner
  /** Receives the run events of every run. */
  readonly watched?: Pick<DeskLink, 'event' | 'serve'>
  /** Changes the policy at the end. */
  readonly amend?: (policy: LocalPolicy) => LocalPolicy
}

/** The request of a session. Omitted fields are not requested. */
export interface Opening {
  readonly roots?: readonly string[] | null
  readonly capabilities?: readonly string[] | null
  readonly limits?: Partial<Record<keyof LocalLimits, number>>
  readonly client_name?: string
  readonly target?: string | null
  readonly told?: (facts: LifecycleFacts) => void
}

export const openingOf = ({
  roots = null,
  capabilities = null,
  limits = {},
  client_name = 'a test',
  target = null,
  told,
}: Opening = {}) => ({
  ...(told !== undefined && { told }),
  door: 'stdio' as const,
  client_name,
  target,
  roots: roots && [...roots],
  available: [...CAPABILITY_NAMES],
  capabilities: capabilities && [...capabilities],
  limits,
})

/** A request with only a command. */
export const startOf = (session: string, argv: readonly string[], more: Partial<LocalRunRequest> = {}): LocalRunRequest => ({
  session,
  argv: [...argv],
  shell: false,
  cwd: null,
  env: {},
  stdin: new Uint8Array(0),
  input: false,
  timeout_ms: null,
  max_output_bytes: null,
  fail_on_limit: false,
  detach: false,
  terminal: null,
  ...more,
})

/** A run, and all its events. */
export class WatchedRun implements LocalRunSink {
  readonly events: LocalRunEvent[] = []
  run!: LocalRun
  readonly #waiting = new Set<() => void>()

  event(event: LocalRunEvent): void {
    this.events.push(event)
    for (const look of this.#waiting) look()
  }

  output(stream: 'stdout' | 'stderr' = 'stdout'): Buffer {
    return Buffer.concat(this.events.flatMap((event) => (event.type === stream ? [event.data] : [])))
  }

  get text(): string {
    return this.output().toString()
  }

  get warnings(): string[] {
    return this.events.flatMap((event) => (event.type === 'warning' ? [event.kind] : []))
  }

  /** Waits until stdout contains a match, and returns the matched text, such as PIDs. */
  async printed(wanted: string | RegExp): Promise<string> {
    const found = (): string | undefined =>
      typeof wanted === 'string' ? (this.text.includes(wanted) ? wanted : undefined) : wanted.exec(this.text)?.[0]
    const first = found()
    if (first !== undefined) return first
    return new Promise((resolve) => {
      const look = (): void => {
        const now = found()
        if (now === undefined) return
        this.#waiting.delete(look)
        resolve(now)
      }
      this.#waiting.add(look)
    })
  }

  /** Returns the outcome. Fails if the outcome of the run is unknown. */
  async outcome(): Promise<LocalOutcome> {
    const outcome = await this.run.ended
    assert.ok(outcome, 'the executor is gone')
    return outcome
  }
}

const SOON_MS = 20_000

/** True if the condition becomes true. False after some seconds otherwise. */
export const soon = async (condition: () => boolean | Promise<boolean>): Promise<boolean> => {
  const late = performance.now() + patient(SOON_MS)
  while (!(await condition())) {
    if (performance.now() > late) return false
    await sleep(5)
  }
  return true
}

/** A LocalEngine in a temporary directory, with real process trees, cleanup process and audit log. */
export class LocalHost {
  readonly dir: string
  /** The only root. */
  readonly root: string
  readonly clock: Clock
  readonly journalPath: string | null
  policy!: LocalPolicy
  engine!: LocalEngine
  /** The service that an interface would call. */
  executor!: LocalExecutorService
  #parts: { stop(): unknown }[] = []

  private constructor(dir: string, options: LocalHostOptions) {
    this.dir = dir
    this.root = join(dir, 'app')
    this.clock = options.clock ?? systemClock
    this.journalPath = options.journalPath === undefined ? join(dir, 'log', 'audit.log') : options.journalPath
  }

  static async start(t: TestContext, options: LocalHostOptions = {}): Promise<LocalHost> {
    const host = new LocalHost(await mkdtemp(join(await realpath(tmpdir()), 'x0x-local-')), options)
    t.after(async () => {
      await host.stop()
      await rm(host.dir, { recursive: true, force: true, maxRetries: 10 })
    })
    await mkdir(host.root)
    for (const [name, text] of Object.entries(options.scripts ?? {})) await host.script(name, text)
    const policy = policyOf([host.root], options)
    host.policy = options.amend?.(policy) ?? policy
    await host.#compose(options)
    host.executor = new LocalExecutorService({ engine: host.engine })
    return host
  }

  async #compose({ trees: given, targets, watched }: LocalHostOptions): Promise<void> {
    const { clock, policy, journalPath } = this
    const cleanup = new CleanupProcess({ log: silent })
    const trees = given ?? (await groupCells())
    const journal = journalPath === null ? null : new Journal({ clock, log: silent }, { path: journalPath, marks: null })
    const local = new LocalJournal({ journal, log: silent })
    this.engine = new LocalEngine({
      trees,
      clock,
      cleanup,
      journal: local,
      log: silent,
      policy,
      targets: targets ?? null,
      ...(watched !== undefined && { watched }),
    })
    await journal?.start()
    cleanup.start()
    this.#parts = [this.engine, cleanup, ...(journal === null ? [] : [journal]), trees]
  }

  /** Ends all parts, newest first. A second call has no effect. */
  async stop(): Promise<void> {
    for (const part of this.#parts.splice(0)) await part.stop()
  }

  /** Writes a shell program and returns its path. */
  async script(name: string, text: string): Promise<string> {
    const path = this.program(name)
    await mkdir(join(this.dir, 'bin'), { recursive: true })
    await writeFile(path, `#!/bin/sh\n${text}\n`)
    await chmod(path, 0o755)
    return path
  }

  program(name: string): string {
    return join(this.dir, 'bin', name)
  }

  /** Returns the ID of a new session. */
  async open(opening: Opening = {}): Promise<string> {
    return (await this.executor.open(openingOf(opening))).session
  }

  async close(session: string): Promise<number> {
    return this.executor.close(session)
  }

  /** Starts a command. Rejects if the command is refused. */
  async run(session: string, argv: readonly string[], more: Partial<LocalRunRequest> = {}): Promise<WatchedRun> {
    const watched = new WatchedRun()
    watched.run = (await this.executor.start(startOf(session, argv, more), watched)) as LocalRun
    return watched
  }

  async journalText(): Promise<string> {
    return this.journalPath === null ? '' : readFile(this.journalPath, 'utf8')
  }

  async lines(): Promise<JournalLine[]> {
    return wholeLines(await this.journalText())
      .map((line) => JSON.parse(line) as JournalLine)
      .filter((line) => !isLifeEvent(line))
  }
}
