// Beside each task, in a session of its own, with the task's temporary directory: when the task ends, however it does, whoever
// was started with that directory ends too, and it goes with all that is in it. Plain JavaScript for any Node >= 20.
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'

/** How long processes may take to end: of themselves where the task is done, and when they were asked to. */
const PATIENCE_MS = 10_000

const read = (path) => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}

/** Those whose words or environment name the directory. Where somebody stands, or stood, says not who began it: it may be who looks on, from another terminal. */
const processesOf = (place) =>
  (existsSync('/proc') ? readdirSync('/proc') : [])
    .filter((name) => /^\d+$/.test(name) && name !== String(process.pid))
    .filter((pid) => {
      const words = ['cmdline', 'environ'].flatMap((file) => read(`/proc/${pid}/${file}`).split('\0'))
      return words.some((word) => word.includes(place) && !/^(OLD)?PWD=/.test(word))
    })
    .map(Number)

/** Waits for their end; answers who did not. */
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
      // It ended meanwhile.
    }
  }
}

/** The innermost first. What could not be unmounted is not ours to remove. */
const unmount = (place) => {
  // A blank in a path is \040 there (proc(5)).
  const mounts = read('/proc/self/mountinfo')
    .split('\n')
    .map((line) => line.split(' ')[4]?.replace(/\\(\d{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))))
  for (const at of mounts.filter((mount) => mount?.startsWith(`${place}/`)).reverse()) {
    const { status, stderr } = spawnSync('umount', ['-l', at], { encoding: 'utf8' })
    if (status !== 0) throw new Error(stderr)
  }
}

/** Answers 1 where a task that was done had left processes, which is a defect of it. */
const sweep = async (place, isDone) => {
  const left = isDone ? await remaining(place) : []
  for (const pid of left) console.error(`left behind: ${pid} ${read(`/proc/${pid}/cmdline`).replaceAll('\0', ' ')}`)
  for (const signal of ['SIGTERM', 'SIGKILL']) {
    signalAll(place, signal)
    await remaining(place)
  }
  unmount(place)
  // Some tests take the right to look into a directory from themselves. A file may have another name elsewhere.
  spawnSync('find', [place, '-type', 'd', '!', '-perm', '-700', '-exec', 'chmod', 'u+rwx', '{}', ';'])
  await rm(place, { recursive: true, force: true, maxRetries: 10 })
  return left.length === 0 ? 0 : 1
}

// Its end is ours to see, also where the task was killed; a word before it: the task was done.
const isDone = (await text(process.stdin)) !== ''
process.exitCode = await sweep(process.argv[2], isDone)
