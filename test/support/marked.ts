import { readdirSync, readFileSync } from 'node:fs'
import type { TestContext } from 'node:test'

import { isAlive } from './processes.ts'

/** The processes on this machine whose environment has the variable `MARK` with this value. */
export const marked = (mark: string): number[] => {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`MARK=${mark}`) && isAlive(pid)
      } catch {
        return false
      }
    })
}

export const killMarked = (t: TestContext, mark: string): void =>
  t.after(() => {
    for (const pid of marked(mark)) process.kill(pid, 'SIGKILL')
  })
