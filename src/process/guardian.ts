import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { findExecutable } from '../policy/executable.ts'
import { GUARDIAN_SCRIPT, GUARDIAN_TOOLS } from './guardian-script.ts'
import { closeInheritedDescriptors } from './inherited-descriptors.ts'

/** A guardian that ended sooner cannot live here, and is not started again and again. */
export const GUARDIAN_LIVED_MS = 100

/** The last word of its command line, which other shells do not have. */
export const GUARDIAN_NAME = 'x0x-guardian'

/** Where the system has its tools. */
const TOOLS_PATH = '/usr/bin:/bin'

/** Tools of the guardian that are not there: without them descendants outside of their group outlive a killed daemon, or get no SIGTERM first. */
export const missingTools = (path = TOOLS_PATH): string[] => GUARDIAN_TOOLS.filter((name) => findExecutable(name, path).kind === 'missing')

/** Other places than the system's, for a test. */
export interface GuardianInit {
  readonly shell?: string
  readonly path?: string
  readonly proc?: string
}

/** What `findCgroupPlaces` finds: an absolute path without blanks or anything that a shell would expand. */
const CELLS_PATH = /^\/[A-Za-z0-9/._@:,+~\\-]+$/

/**
 * A small process beside the daemon that outlives it and leaves no orphan: when the daemon dies, in
 * whatever way, it ends every process group that was still running. Costs a line on a pipe per run.
 */
export class Guardian implements Startable {
  readonly #log: Logger
  readonly #init: Required<GuardianInit>
  /** What it ends when we die, a line of the script's input for each. */
  readonly #watched = new Set<string>()
  #helper: ChildProcess | null = null
  #launchedAt = 0
  #running = false

  constructor(components: { log: Logger }, init: GuardianInit = {}) {
    this.#log = components.log
    this.#init = { shell: '/bin/sh', path: TOOLS_PATH, proc: '/proc', ...init }
  }

  /** Also makes this process fit to have children: none of them gets a descriptor that we were left with. */
  start(): void {
    closeInheritedDescriptors()
    const missing = missingTools(this.#init.path)
    if (missing.length > 0) this.#log.warn({ missing }, 'what left its process group may outlive a daemon that is killed')
    this.#running = true
    this.#launch()
  }

  /** Whatever still runs is ended by the guardian, as if we had died. */
  async stop(): Promise<void> {
    this.#running = false
    const helper = this.#helper
    if (helper === null) return
    helper.ref()
    const gone = once(helper, 'exit')
    helper.stdin?.end()
    await gone
  }

  /** Starts the helper again if it was lost. To be called before each run. */
  ensure(): void {
    if (this.#helper === null && this.#running) this.#launch()
  }

  /** When we die, the guardian ends this process group. Members of a watched control group need no call. */
  protect(group: number): void {
    // It goes into a kill as its negative: 0 and 1 would mean ourselves and everybody.
    if (!Number.isSafeInteger(group) || group <= 1) throw new RangeError(`not a process group: ${group}`)
    this.ensure()
    this.#watch(`+ ${group}`)
  }

  /** When we die, the guardian ends every process whose mark begins so. */
  watchMarks(prefix: string): void {
    if (!/^[0-9a-f]+$/.test(prefix)) throw new RangeError(`not the beginning of a mark: ${prefix}`)
    this.#watch(`? ${prefix}`)
  }

  /** When we die, the guardian ends every process in the groups below these. */
  watchCells(parents: readonly string[]): void {
    for (const path of parents) {
      if (!CELLS_PATH.test(path)) throw new RangeError(`not a control group: ${path}`)
      this.#watch(`= ${path}`)
    }
  }

  /** The group's leader was reaped and the rest of it killed. */
  release(group: number): void {
    if (this.#watched.delete(`+ ${group}`)) this.#send(`- ${group}`)
  }

  #watch(line: string): void {
    if (this.#watched.has(line)) return
    this.#watched.add(line)
    this.#send(line)
  }

  #send(line: string): void {
    this.#helper?.stdin?.write(`${line}\n`)
  }

  #launch(): void {
    // Its own name stands behind the script: argv0 must be `sh`, by which busybox chooses its applet.
    const { shell, path, proc } = this.#init
    const helper = spawn(shell, ['-c', GUARDIAN_SCRIPT, 'sh', proc, GUARDIAN_NAME], {
      argv0: 'sh',
      cwd: '/',
      env: { PATH: path },
      stdio: ['pipe', 'ignore', 'ignore'],
      // A session of its own: a Ctrl-C that ends the daemon must not end this first.
      detached: true,
    })
    this.#helper = helper
    this.#launchedAt = performance.now()
    // It must not keep us alive: it is there for the moment when we are not.
    helper.unref()
    if (helper.stdin instanceof Socket) helper.stdin.unref()
    // `exit` below handles its end; a failed write tells nothing more.
    helper.stdin?.on('error', () => {})
    helper.once('error', (error) => this.#lost(helper, errorText(error)))
    helper.once('exit', () => this.#lost(helper, 'it ended'))
    for (const line of this.#watched) this.#send(line)
  }

  /** Starts another guardian at once, which is sent all that runs. Where this one ended within GUARDIAN_LIVED_MS the next run does. */
  #lost(helper: ChildProcess, reason: string): void {
    if (this.#helper !== helper) return
    this.#helper = null
    if (!this.#running) return
    this.#log.warn({ reason }, 'the guardian of running processes is gone')
    if (performance.now() - this.#launchedAt >= GUARDIAN_LIVED_MS) this.#launch()
  }
}
