import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'

/** Yama's, where the kernel has it: 0 lets a user look into all processes of his own. */
const PTRACE_SCOPE = '/proc/sys/kernel/yama/ptrace_scope'

/** Why system calls cannot be counted here; null = they can. */
export const straceNeeds = (): string | null => {
  try {
    execFileSync('strace', ['-c', '-o', '/dev/null', '/bin/true'], { stdio: 'ignore' })
  } catch {
    return 'strace and the right to use it: apt-get install strace'
  }
  if (process.geteuid?.() === 0 || !existsSync(PTRACE_SCOPE) || readFileSync(PTRACE_SCOPE, 'utf8').trim() === '0') return null
  return 'root, to look into a process that is not its child'
}

/** How often a process and its children made each system call while `work` went on. `only`: names, or all. */
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
