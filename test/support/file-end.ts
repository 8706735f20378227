// Loaded before each test file. Processes that a failed test left behind must not block the whole test run.
import { readFileSync } from 'node:fs'
import { after } from 'node:test'

import { patient } from './wait-limits.ts'

/** Time for processes that an `after` hook ends without waiting. */
const GRACE_MS = patient(15_000)

const children = (): number[] => {
  try {
    return readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number)
  } catch {
    return []
  }
}

after(() => {
  const give = (): void => {
    const left = children()
    // On a busy machine, the test runner can be slow to read the report.
    if (left.length === 0 && process.stdout.writableLength > 0) return wait()
    const held = process.getActiveResourcesInfo().join(', ')
    process.stderr.write(`${process.argv[1]}: its tests are over, and this keeps it: ${held}; children ${left.join(', ') || 'none'}\n`)
    for (const pid of left) process.kill(pid, 'SIGKILL')
    process.exit(1)
  }
  const wait = (): void => void setTimeout(give, GRACE_MS).unref()
  wait()
})
