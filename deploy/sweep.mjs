// Cleans up after one task, in a separate process and session. When the task ends for any reason, it ends all processes that were started
// with the task's temporary directory, and removes the directory. Plain JavaScript for any Node >= 20.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'

/** Time in which processes may end, after the task and after each signal. */
const PATIENCE_MS = 10_000

const read = (path) => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/**
 * Processes whose arguments or environment name the directory. The working directory does not count, because a user may look into the
 * directory from another terminal.
 */
const processesOf = (place) =>
  (existsSync('/proc') ? readdirSync('/proc') : [])
    .filter((name) => /^\d+$/.test(name) && name !== String(process.pid))
    .filter((pid) => {
      const words = ['cmdline', 'environ'].flatMap((file) => read(`/proc/${pid}/${file}`).split('\0'))
      return words.some((word) => word.includes(place) && !/^(OLD)?PWD=/.test(word))
    })
    .map(Number)

/** Waits until these processes have ended. Returns those that still run. */
const remaining = async (place) => {
  const deadline = performance.now() + PATIENCE_MS
  for (;;) {
    const pids = processesOf(place)
    if (pids.length === 0 || performance.now() > deadline) return pids
    await sleep(100)
  }
}

const signalAll = (place, signal) => {
  for (const pid of processesOf(place)) {
    try {
      process.kill(pid, signal)
    } catch {
      // The process has already ended.
    }
  }
}

/** Unmounts the innermost mounts first. Throws if that fails, because a mounted tree must not be removed. */
const unmount = (place) => {
  // A blank in a path is written as \040 in this file (proc(5)).
  const mounts = read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => line.split(' ')[4]?.replace(/\\(\d{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))))
  for (const at of mounts.filter((mount) => mount?.startsWith(`${place}/`)).reverse()) {
    const { status, stderr } = spawnSync('umount', ['-l', at], { encoding: 'utf8' })
    if (status !== 0) throw new Error(stderr)
  }
}

/** Returns 1 if a task that succeeded left processes, which is a defect of the task. */
const sweep = async (place, isDone) => {
  const left = isDone ? await remaining(place) : []
  for (const pid of left) console.error(`left behind: ${pid} ${read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ')}`)
  for (const signal of ['SIGTERM', 'SIGKILL']) {
    signalAll(place, signal)
    await remaining(place)
  }
  unmount(place)
  // Some tests take away their own right to enter a directory. A file may be a hard link to one elsewhere, so its mode does not change.
  spawnSync('find', [place, '-type', 'd', '!', '-perm', '-700', '-exec', 'chmod', 'u+rwx', '{}', ';'])
  await rm(place, { recursive: true, force: true, maxRetries: 10 })
  return left.length === 0 ? 0 : 1
}

// Standard input ends when the task's process ends, even if it is killed. Any input before that means that the task succeeded.
const isDone = (await text(process.stdin)) !== ''
process.exitCode = await sweep(process.argv[2], isDone)
