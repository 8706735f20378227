import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'

/** Yama's setting, if the kernel has it. 0 lets users trace all their processes. */
const PTRACE_SCOPE = '/proc/sys/kernel/yama/ptrace_scope'

/** Why system calls cannot be counted on this machine, or null. */
export const straceNeeds = (): string | null => {
  try {
    execFileSync('strace', ['-c', '-o', '/dev/null', '/bin/true'], { stdio: 'ignore' })
  } catch {
    return 'strace and the right to use it: apt-get install strace'
  }
  if (process.geteuid?.() === 0 || !existsSync(PTRACE_SCOPE) || readFileSync(PTRACE_SCOPE, 'utf8').trim() === '0') return null
  return 'root, to look into a process that is not its child'
}

/** Counts each system call of a process and its children during `work`. `only` lists names. The default is all. */
export const systemCalls = async (
  pid: number,
  work: () => Promise<unknown>,
  only: readonly string[] = ['all'],
): Promise<ReadonlyMap<string, number>> => {
  const argv = ['-f', '-c', '-U', 'name,calls', '-e', `trace=${only.join(',')}`, '-p', String(pid)]
  const strace = spawn('strace', argv, { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  const attached = new Promise<void>((resolve, reject) => {
    strace.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text
      if (said.includes(' attached')) resolve()
    })
    strace.on('close', () => reject(new Error(`strace did not attach: ${said}`)))
  })
  try {
    await attached
    await work()
  } finally {
    if (strace.exitCode === null) {
      strace.kill('SIGINT')
      await once(strace, 'close')
    }
  }
  return new Map([...said.matchAll(/^(?!total)(\w+) +(\d+)$/gm)].map(([, name = '', count]) => [name, Number(count)] as const))
}

/** A command that runs a program under strace from its first call. The trace goes to `file`. */
export const traced = (file: string, program: readonly string[]): readonly string[] => [
  'strace',
  '-f',
  '-qq',
  '-s',
  '0',
  '-e',
  'signal=none',
  '-e',
  'verbose=none',
  '-o',
  file,
  '--',
  ...program,
]

const CALL = /^(\d+) +(?:<\.\.\. )?([a-z]\w+)(?: resumed>|\()(.*)/

/** The system calls of a program, its threads, and its children until they execute another program. */
export const callsIn = (trace: string): ReadonlySet<string> => {
  const calls = new Set<string>()
  const others = new Set<string>()
  let first: string | null = null
  let isStarted = false
  for (const line of trace.split('\n')) {
    const [, pid, call, rest] = CALL.exec(line) ?? []
    if (pid === undefined || call === undefined || others.has(pid)) continue
    first ??= pid
    calls.add(call)
    if (call !== 'execve' || !rest?.endsWith(' = 0')) continue
    if (pid === first && !isStarted) isStarted = true
    else others.add(pid)
  }
  return calls
}
