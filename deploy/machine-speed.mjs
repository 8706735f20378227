// How slow this machine is at starting programs, which is what most tests wait for.
import { spawnSync } from 'node:child_process'

/** Milliseconds that the runtime takes to start on an idle two-core machine of a cloud. */
const USUAL_START_MS = 45
const STARTS = 5
/** A machine that is slower than this fails its tests. */
const MAX_SLOWNESS = 8

/** Times as slow as usual, from 1 up: the median of some starts of the runtime. */
export const slowness = () => {
  const times = Array.from({ length: STARTS }, () => {
    const began = performance.now()
    spawnSync(process.execPath, ['-e', '0'])
    return performance.now() - began
  }).sort((a, b) => a - b)
  return Math.min(MAX_SLOWNESS, Math.max(1, times[Math.floor(STARTS / 2)] / USUAL_START_MS))
}

/** The environment variable that tells tests how many times longer they may wait. */
export const PATIENCE_VARIABLE = 'TEST_PATIENCE'
