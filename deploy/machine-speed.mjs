// Measures how slowly this machine starts programs, because most tests wait for that.
import { spawnSync } from 'node:child_process'

/** Start time of the runtime in milliseconds, on an idle cloud machine with two cores. */
const USUAL_START_MS = 45
const STARTS = 5
/** On a machine that is slower than this, tests fail. */
const MAX_SLOWNESS = 8

/** Returns how many times slower than usual this machine is, at least 1. It is the median of some starts of the runtime. */
export const slowness = () => {
  const times = Array.from({ length: STARTS }, () => {
    const began = performance.now()
    spawnSync(process.execPath, ['-e', '0'])
    return performance.now() - began
  }).sort((a, b) => a - b)
  return Math.min(MAX_SLOWNESS, Math.max(1, times[Math.floor(STARTS / 2)] / USUAL_START_MS))
}

/** Environment variable with the factor for the time limits of tests. */
export const PATIENCE_VARIABLE = 'TEST_PATIENCE'
