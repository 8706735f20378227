import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { Socket } from 'node:net'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { findExecutable } from '../policy/executable.ts'
import { closeInheritedDescriptors } from './inherited-descriptors.ts'
import { MARK_VARIABLE } from './run-mark.ts'

/** Seconds between SIGTERM and SIGKILL for the process groups of a dead daemon. */
const CLEANUP_GRACE_SECONDS = 1
/** Processes whose environment one command reads. A command line takes at least 128 KiB (execve(2)). */
const CLEANUP_PORTION = 256
/** Seconds that one such command may take, because the kernel may block reads of a process's memory. */
const CLEANUP_READ_SECONDS = 2

/** System tools that the script calls. */
export const CLEANUP_TOOLS = ['cat', 'grep', 'rmdir', 'sleep', 'timeout', 'tr'] as const

/**
 * Reads `+ GROUP`, `- GROUP`, `= PARENT` (a control group with the groups of runs) and `? PREFIX` (of the marks of runs) until the daemon's
 * end of the pipe closes. Then it ends what is left and removes the empty groups. The kernel lists members of a control group by thread, so
 * only thread group leaders are signalled. A process that our PID namespace does not show is listed as 0, which `kill` would take for the
 * script itself. The text is constant. It contains no input of clients, and does not split or expand its input. It reads environments in
 * portions, because a command line is limited (execve(2)). It reads with a timeout. Its argument is the path of /proc.
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

/** A cleanup process that ended sooner cannot work here and is not restarted at once. */
export const CLEANUP_LIVED_MS = 100

/** Last argument of its command line, which identifies it. */
export const CLEANUP_NAME = 'x0x-cleanup'

const TOOLS_PATH = '/usr/bin:/bin'

/** Missing tools. Without them, descendants outside of their process group outlive a killed daemon or get no SIGTERM first. */
export const missingTools = (path = TOOLS_PATH): string[] => CLEANUP_TOOLS.filter((name) => findExecutable(name, path).kind === 'missing')

/** Other paths for tests. */
export interface CleanupProcessInit {
  readonly shell?: string
  readonly path?: string
  readonly proc?: string
}

/** Paths that `findCgroupPlaces` returns. They are absolute and have no blanks or shell patterns. */
const PROCESS_TREES_PATH = /^\/[A-Za-z0-9/._@:,+~\\-]+$/

/** A small process that outlives the daemon. If the daemon dies, it ends all running process groups. It costs a pipe line per run. */
export class CleanupProcess implements Startable {
  readonly #log: Logger
  readonly #init: Required<CleanupProcessInit>
  /** Input lines of the script. They name what it ends when the daemon dies. */
  readonly #watched = new Set<string>()
  #helper: ChildProcess | null = null
  #launchedAt = 0
  #running = false

  constructor(deps: { log: Logger }, init: CleanupProcessInit = {}) {
    this.#log = deps.log
    this.#init = { shell: '/bin/sh', path: TOOLS_PATH, proc: '/proc', ...init }
  }

  /** Also closes inherited descriptors of this process, so that no child inherits them. */
  start(): void {
    closeInheritedDescriptors()
    const missing = missingTools(this.#init.path)
    if (missing.length > 0) this.#log.warn({ missing }, 'if the daemon is killed, processes outside of their process group may survive')
    this.#running = true
    this.#launch()
  }

  /** The cleanup process ends everything that still runs, as if the daemon had died. */
  async stop(): Promise<void> {
    this.#running = false
    const helper = this.#helper
    if (helper === null) return
    helper.ref()
    const gone = once(helper, 'exit')
    helper.stdin?.end()
    await gone
  }

  /** Restarts the cleanup process if it was lost. Call it before each run. */
  ensure(): void {
    if (this.#helper === null && this.#running) this.#launch()
  }

  /** Registers a process group. Members of a watched control group need no registration. */
  protect(group: number): void {
    // `kill` takes its negative, so 0 and 1 would mean this process's group and all processes.
    if (!Number.isSafeInteger(group) || group <= 1) throw new RangeError(`not a process group: ${group}`)
    this.ensure()
    this.#watch(`+ ${group}`)
  }

  /** Registers all processes whose mark starts with this prefix. */
  watchMarks(prefix: string): void {
    if (!/^[0-9a-f]+$/.test(prefix)) throw new RangeError(`not the beginning of a mark: ${prefix}`)
    this.#watch(`? ${prefix}`)
  }

  /** Registers all processes in the groups below these. */
  watchGroups(parents: readonly string[]): void {
    for (const path of parents) {
      if (!PROCESS_TREES_PATH.test(path)) throw new RangeError(`not a control group: ${path}`)
      this.#watch(`= ${path}`)
    }
  }

  /** Call it when the leader was reaped and the rest of the group killed. */
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
    // The name follows the script, because argv0 must be `sh` for busybox.
    const { shell, path, proc } = this.#init
    const helper = spawn(shell, ['-c', CLEANUP_SCRIPT, 'sh', proc, CLEANUP_NAME], {
      argv0: 'sh',
      cwd: '/',
      env: { PATH: path },
      stdio: ['pipe', 'ignore', 'ignore'],
      // In its own session, so that Ctrl-C does not end it before the daemon.
      detached: true,
    })
    this.#helper = helper
    this.#launchedAt = performance.now()
    // It must not keep the daemon alive.
    helper.unref()
    if (helper.stdin instanceof Socket) helper.stdin.unref()
    // `exit` below reports its end, so a failed write need not.
    helper.stdin?.on('error', () => {})
    helper.once('error', (error) => this.#lost(helper, errorText(error)))
    helper.once('exit', () => this.#lost(helper, 'it ended'))
    for (const line of this.#watched) this.#send(line)
  }

  /** Restarts it at once and registers everything again. If it ended within CLEANUP_LIVED_MS, the next run restarts it. */
  #lost(helper: ChildProcess, reason: string): void {
    if (this.#helper !== helper) return
    this.#helper = null
    if (!this.#running) return
    this.#log.warn({ reason }, 'the cleanup process has ended')
    if (performance.now() - this.#launchedAt >= CLEANUP_LIVED_MS) this.#launch()
  }
}
