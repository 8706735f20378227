import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { findExecutable } from '../policy/executable.ts'
import { closeInheritedDescriptors } from './inherited-descriptors.ts'
import { MARK_VARIABLE } from './run-mark.ts'

/** How long the groups of a daemon that died have between SIGTERM and SIGKILL, in seconds. */
const CLEANUP_GRACE_SECONDS = 1
/** Processes whose environment it reads with one command, which takes 128 KiB of names at least (execve(2)). */
const CLEANUP_PORTION = 256
/** How long one such command may take, in seconds: a process whose memory the kernel holds does not come. */
const CLEANUP_READ_SECONDS = 2

/** What it calls, of the system. */
export const CLEANUP_TOOLS = ['cat', 'grep', 'rmdir', 'sleep', 'timeout', 'tr'] as const

/**
 * Reads `+ GROUP`, `- GROUP`, `= CELLS` (a control group that holds those of runs) and `? MARKS` (what the marks of runs begin with) until our end of
 * the pipe is closed, by us or by our death; then ends what is left, and takes the empty groups away. Of the members of a
 * control group, which the kernel lists by thread, each process is asked once; one that our PID namespace does not show
 * is listed as 0, which in a kill would be ourselves. A constant text: nothing that
 * anyone asks for becomes part of it, and what it reads is neither split nor expanded as a path. Environments are read in
 * portions, because one command takes only so many names (execve(2)), and in time. Its argument is where processes are shown.
 */
export const CLEANUP_SCRIPT = `
trap '' HUP INT QUIT TERM
set -f
groups=
cells=
marks=
stuck=
proc=$1
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
within() { timeout -s KILL ${CLEANUP_READ_SECONDS} "$@"; }
if ! command -v timeout >/dev/null; then within() { "$@"; }; fi
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
strike() {
  mark=$1 signals=$2
  shift 2
  [ $# -gt 0 ] || return
  found=$(within grep -l "${MARK_VARIABLE}=$mark-" "$@" 2>/dev/null)
  if [ $? -gt 123 ]; then
    # The memory of one process cannot be read: the others are read one by one, and that one not again.
    if [ $# -eq 1 ]; then stuck="$stuck $1 "; else for one; do strike "$mark" "$signals" "$one"; done; fi
    return
  fi
  for environ in $found; do
    # The variable itself: a stranger's may have such a text for its value.
    within cat "$environ" | tr '\\n\\0' '_\\n' | grep -q "^${MARK_VARIABLE}=$mark-" || continue
    member=\${environ#"$proc"/}
    for signal in $signals; do kill "$signal" "\${member%/environ}"; done
  done
}
marked() {
  for mark in $marks; do
    set +f
    set -- "$1" "$proc"/[0-9]*
    set -f
    signals=$1
    shift
    portion=
    count=0
    for process; do
      case $stuck in *" $process/environ "*) continue ;; esac
      portion="$portion $process/environ"
      count=$((count + 1))
      [ $count -lt ${CLEANUP_PORTION} ] && continue
      strike "$mark" "$signals" $portion
      portion=
      count=0
    done
    strike "$mark" "$signals" $portion
    set -- "$signals"
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
marked '-TERM -CONT'
sleep ${CLEANUP_GRACE_SECONDS}
for group in $groups; do kill -KILL "-$group" 2>/dev/null; done
for round in 1 2 3; do marked -STOP; done
for round in 1 2 3; do marked -KILL; done
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
sweep || { sleep ${CLEANUP_GRACE_SECONDS}; sweep; }
`

/** A guardian that ended sooner cannot live here, and is not started again and again. */
export const CLEANUP_LIVED_MS = 100

/** The last word of its command line, which other shells do not have. */
export const CLEANUP_NAME = 'x0x-guardian'

/** Where the system has its tools. */
const TOOLS_PATH = '/usr/bin:/bin'

/** Tools of the guardian that are not there: without them descendants outside of their group outlive a killed daemon, or get no SIGTERM first. */
export const missingTools = (path = TOOLS_PATH): string[] => CLEANUP_TOOLS.filter((name) => findExecutable(name, path).kind === 'missing')

/** Other places than the system's, for a test. */
export interface CleanupProcessInit {
  readonly shell?: string
  readonly path?: string
  readonly proc?: string
}

/** What `findCgroupPlaces` finds: an absolute path without blanks or anything that a shell would expand. */
const PROCESS_TREES_PATH = /^\/[A-Za-z0-9/._@:,+~\\-]+$/

/**
 * A small process beside the daemon that outlives it and leaves no orphan: when the daemon dies, in
 * whatever way, it ends every process group that was still running. Costs a line on a pipe per run.
 */
export class CleanupProcess implements Startable {
  readonly #log: Logger
  readonly #init: Required<CleanupProcessInit>
  /** What it ends when we die, a line of the script's input for each. */
  readonly #watched = new Set<string>()
  #helper: ChildProcess | null = null
  #launchedAt = 0
  #running = false

  constructor(deps: { log: Logger }, init: CleanupProcessInit = {}) {
    this.#log = deps.log
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
  watchGroups(parents: readonly string[]): void {
    for (const path of parents) {
      if (!PROCESS_TREES_PATH.test(path)) throw new RangeError(`not a control group: ${path}`)
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
    const helper = spawn(shell, ['-c', CLEANUP_SCRIPT, 'sh', proc, CLEANUP_NAME], {
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
    if (performance.now() - this.#launchedAt >= CLEANUP_LIVED_MS) this.#launch()
  }
}
