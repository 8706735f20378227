import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'

import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { GUARDIAN_GRACE_SECONDS, GUARDIAN_LIVED_MS } from '../protocol/local-limits.ts'
import { MARK_VARIABLE } from './run-mark.ts'
import { closeInheritedDescriptors } from './inherited-descriptors.ts'

/**
 * Reads `+ GROUP`, `- GROUP`, `= CELLS` (a control group that holds those of runs) and `? MARKS` (what the marks of runs begin with) until our end of
 * the pipe is closed, by us or by our death; then ends what is left, and takes the empty groups away. Of the members of a
 * control group, which the kernel lists by thread, each process is asked once; one that our PID namespace does not show
 * is listed as 0, which in a kill would be ourselves. A constant text: nothing that
 * anyone asks for becomes part of it, and what it reads is neither split nor expanded as a path.
 */
const SCRIPT = `
trap '' HUP INT QUIT TERM
set -f
groups=
cells=
marks=
while read -r change group; do
  case $change in
    =) cells="$cells $group" ;;
    '?') marks="$marks $group" ;;
    +) groups="$groups $group" ;;
    -) left=
       for other in $groups; do [ "$other" = "$group" ] || left="$left $other"; done
       groups=$left ;;
  esac
done
leads() {
  value=
  while read -r key value; do [ "$key" = Tgid: ] && break; done <"/proc/$1/status"
  [ "$value" = "$1" ]
}
sweep() {
  swept=0
  for cell in $cells; do
    [ -d "$cell" ] || continue
    set +f
    for leaf in "$cell"/*/; do [ -d "$leaf" ] && rmdir "$leaf"; done
    set -f
    rmdir "$cell" || swept=1
  done 2>/dev/null
  return $swept
}
marked() {
  for mark in $marks; do
    set +f
    for environ in $(timeout 5 grep -l "${MARK_VARIABLE}=$mark-" /proc/[0-9]*/environ 2>/dev/null); do
      set -f
      # The variable itself: a stranger's may have such a text for its value.
      tr '\\n\\0' '_\\n' <"$environ" | grep -q "^${MARK_VARIABLE}=$mark-" || continue
      member=\${environ#/proc/}
      kill "$1" "\${member%/environ}"
    done
    set -f
  done 2>/dev/null
}
found=
for cell in $cells; do
  set +f
  for members in "$cell"/*/cgroup.threads; do
    [ -e "$members" ] || continue
    while read -r member; do leads "$member" && kill -TERM "$member" && kill -CONT "$member" && found=1; done <"$members"
  done
  set -f
done 2>/dev/null
if [ -z "$groups$found" ]; then sweep; exit 0; fi
for group in $groups; do kill -TERM "-$group" && kill -CONT "-$group"; done 2>/dev/null
marked -TERM
sleep ${GUARDIAN_GRACE_SECONDS}
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
for round in 1 2 3; do marked -STOP; done
marked -KILL
for cell in $cells; do
  [ -e "$cell/cgroup.kill" ] && echo 1 >"$cell/cgroup.kill" && continue
  [ -e "$cell/cgroup.freeze" ] && echo 1 >"$cell/cgroup.freeze"
  set +f
  for round in 1 2 3 4; do
    for members in "$cell"/*/cgroup.threads "$cell"/*/cgroup.procs; do
      [ -e "$members" ] || continue
      while read -r member; do [ "$member" = 0 ] || kill -KILL "$member"; done <"$members"
    done
  done
  set -f
  [ -e "$cell/cgroup.freeze" ] && echo 0 >"$cell/cgroup.freeze"
done 2>/dev/null
sweep || { sleep ${GUARDIAN_GRACE_SECONDS}; sweep; }
`

/** The last word of its command line, by which it is told from other shells. */
export const GUARDIAN_NAME = 'x0x-guardian'

/** What `findCgroupPlaces` finds: an absolute path without blanks or anything that a shell would expand. */
const CELLS_PATH = /^\/[A-Za-z0-9/._@:,+~\\-]+$/

/**
 * A small process beside the daemon that outlives it and leaves no orphan: when the daemon dies, in
 * whatever way, it ends every process group that was still running. Costs a line on a pipe per run.
 */
export class Guardian implements Startable {
  readonly #log: Logger
  readonly #shell: string
  readonly #groups = new Set<number>()
  readonly #cells = new Set<string>()
  readonly #marks = new Set<string>()
  #helper: ChildProcess | null = null
  #launchedAt = 0
  #running = false

  /** `shell`: another than the system's, for a test. */
  constructor(components: { log: Logger; shell?: string }) {
    this.#log = components.log
    this.#shell = components.shell ?? '/bin/sh'
  }

  /** Also makes this process fit to have children: none of them gets a descriptor that we were left with. */
  start(): void {
    closeInheritedDescriptors()
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

  /** From now on this group ends with us. What a watched control group holds needs no such word. */
  protect(group: number): void {
    // It goes into a kill as its negative: 0 and 1 would mean ourselves and everybody.
    if (!Number.isSafeInteger(group) || group <= 1) throw new RangeError(`not a process group: ${group}`)
    this.ensure()
    this.#groups.add(group)
    this.#tell('+', group)
  }

  /** What carries a mark that begins so ends with us, if anything still runs. */
  watchMarks(prefix: string): void {
    if (!/^[0-9a-f]+$/.test(prefix)) throw new RangeError(`not the beginning of a mark: ${prefix}`)
    this.#marks.add(prefix)
    this.#tell('?', prefix)
  }

  /** What lives in the groups below these when we die ends with us. */
  watchCells(parents: readonly string[]): void {
    for (const path of parents) {
      if (!CELLS_PATH.test(path)) throw new RangeError(`not a control group: ${path}`)
      if (this.#cells.has(path)) continue
      this.#cells.add(path)
      this.#tell('=', path)
    }
  }

  /** The group's leader was reaped and the rest of it killed. */
  release(group: number): void {
    if (this.#groups.delete(group)) this.#tell('-', group)
  }

  #tell(change: '+' | '-' | '=' | '?', group: number | string): void {
    this.#helper?.stdin?.write(`${change} ${group}\n`)
  }

  #launch(): void {
    // Its name stands behind the script: by the first word a shell may be told apart from what else its file is (busybox).
    const helper = spawn(this.#shell, ['-c', SCRIPT, GUARDIAN_NAME], {
      argv0: 'sh',
      cwd: '/',
      env: { PATH: '/usr/bin:/bin' },
      stdio: ['pipe', 'ignore', 'ignore'],
      // A session of its own: a Ctrl-C that ends the daemon must not end this first.
      detached: true,
    })
    this.#helper = helper
    this.#launchedAt = performance.now()
    // It must not keep us alive: it is there for the moment when we are not.
    helper.unref()
    if (helper.stdin instanceof Socket) helper.stdin.unref()
    // Its end is noticed below; a write into nothing is no news.
    helper.stdin?.on('error', () => {})
    helper.once('error', (error) => this.#lost(helper, errorText(error)))
    helper.once('exit', () => this.#lost(helper, 'it ended'))
    for (const path of this.#cells) this.#tell('=', path)
    for (const prefix of this.#marks) this.#tell('?', prefix)
    for (const group of this.#groups) this.#tell('+', group)
  }

  /** Another takes its place at once, and is told of all that run. One that did not live at all is not followed before the next run. */
  #lost(helper: ChildProcess, reason: string): void {
    if (this.#helper !== helper) return
    this.#helper = null
    if (!this.#running) return
    this.#log.warn({ reason }, 'the guardian of running processes is gone')
    if (performance.now() - this.#launchedAt >= GUARDIAN_LIVED_MS) this.#launch()
  }
}
