// Loaded before each file of tests: whatever a test that failed has left running must not hold the whole run.
import { readFileSync } from 'node:fs'
import { after } from 'node:test'

import { patient } from './wait-limits.ts'

/** Long enough for what is asked to end in an `after` and not waited for. */
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
    // On a machine that is busy with others, the runner takes the report late.
    if (left.length === 0 && process.stdout.writableLength > 0) return wait()
    const held = process.getActiveResourcesInfo().join(', ')
    process.stderr.write(`${process.argv[1]}: its tests are over, and this keeps it: ${held}; children ${left.join(', ') || 'none'}\n`)
    for (const pid of left) process.kill(pid, 'SIGKILL')
    process.exit(1)
  }
  const wait = (): void => void setTimeout(give, GRACE_MS).unref()
  wait()
})
