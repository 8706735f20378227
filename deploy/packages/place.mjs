// Where packages are made, and what makes them.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'

/** What is made; nothing else is in it afterwards. */
export const OUT = join(packageRoot, 'dist', 'packages')
/** Of one making; gone afterwards. */
export const WORK = join(packageRoot, 'node_modules', '.cache', 'packages.tmp')

/** Runs a tool to its end and answers what it printed; throws with what it said. */
export const ran = (file, args, options = {}) => {
  const { status, error, stdout, stderr } = spawnSync(file, args, { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, ...options })
  if (status !== 0) throw error ?? new Error(`${file} ${args[0] ?? ''} ended with ${status}:\n${stdout}${stderr}`)
  return stdout
}

/** When the sources were committed, in seconds: the time that all files of a package have. */
export const sourceDate = () => {
  const { SOURCE_DATE_EPOCH: given } = process.env
  if (given !== undefined) return Number(given)
  return Number(ran('git', ['-c', 'safe.directory=*', 'log', '-1', '--format=%ct'], { cwd: packageRoot }).trim())
}
