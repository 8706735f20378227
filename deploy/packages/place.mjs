// Where packages are made, and what makes them.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { packageRoot } from '../runtime.mjs'

/** What is made; nothing else is in it afterwards. */
export const OUT = join(packageRoot, 'dist', 'packages')
/** Of Linux, that packages are made for; what is of another than this machine's is not run. */
export const ARCHITECTURES = ['x64', 'arm64']
/** Of one making; gone afterwards. */
export const WORK = join(packageRoot, 'node_modules', '.cache', 'packages.tmp')

/** The end of what a tool said, where it failed. */
const MAX_SAID = 4096

/** Runs a tool to its end and answers what it printed; throws with what it said. */
export const ran = async (file, args, options = {}) => {
  const done = promisify(execFile)(file, args, { maxBuffer: 64 * 1024 * 1024, ...options })
  done.child.stdin?.end()
  const { stdout } = await done.catch((error) => {
    const { code, signal, stdout = '', stderr = '', message } = error
    throw new Error(
      `${file} ${args.slice(0, 3).join(' ')} ended with ${signal ?? code}:\n${`${stdout}${stderr || message}`.slice(-MAX_SAID)}`,
    )
  })
  return stdout
}

/** When the sources were committed, in seconds: the time that all files of a package have. */
export const sourceDate = async () => {
  const { SOURCE_DATE_EPOCH: given } = process.env
  if (given !== undefined) return Number(given)
  return Number(await ran('git', ['-c', 'safe.directory=*', 'log', '-1', '--format=%ct'], { cwd: packageRoot }))
}
