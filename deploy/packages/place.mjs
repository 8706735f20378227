// The directories for making packages, and a function that runs tools.
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { packageRoot } from '../runtime.mjs'

/** The directory of the packages. Afterwards it contains no other files. */
export const OUT = join(packageRoot, 'dist', 'packages')
/** The architectures of Linux that get packages. Programs of another architecture than this machine's are not run. */
export const ARCHITECTURES = ['x64', 'arm64']
/** Temporary directory, which is removed at the end. */
export const WORK = join(packageRoot, 'node_modules', '.cache', 'packages.tmp')

/** Length of the output in the error of a failed tool. Only the end is kept. */
const MAX_SAID = 4096

/** Runs a tool to its end and returns its output. If it fails, throws with the output. */
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

/** The commit time of the sources in seconds, which all files of a package get. */
export const sourceDate = async () => {
  const { SOURCE_DATE_EPOCH: given } = process.env
  if (given !== undefined) return Number(given)
  return Number(await ran('git', ['-c', 'safe.directory=*', 'log', '-1', '--format=%ct'], { cwd: packageRoot }))
}
