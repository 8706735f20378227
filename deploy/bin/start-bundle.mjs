// Starts a bundle of dist/ with the runtime that it needs.
import { existsSync, realpathSync } from 'node:fs'
import { join } from 'node:path'

import { findRuntime, missingRuntimeText, packageRoot, runInstead } from '../runtime.mjs'
import { buildFirst } from './build-first.mjs'

/** Starts a bundle by its file name in dist/, with the arguments of this process. */
export const startBundle = async (file) => {
  const bundle = join(packageRoot, 'dist', file)
  const start = async () => {
    const runtime = findRuntime()
    if (!runtime) {
      console.error(missingRuntimeText())
      process.exitCode = 2
    } else if (runtime === realpathSync(process.execPath)) {
      // The daemon ends when the channel of its launcher closes. A channel of another parent process must not have this effect.
      process.send = undefined
      await import(bundle)
    } else if (process.execve) {
      // Replaces this process if the running Node has `execve`, which would print a warning that it is experimental.
      process.removeAllListeners('warning')
      process.execve(runtime, [runtime, bundle, ...process.argv.slice(2)], process.env)
    } else {
      process.exitCode = await runInstead(runtime, [bundle, ...process.argv.slice(2)], process.env, { tied: true })
    }
  }
  if (existsSync(bundle)) await start()
  else await buildFirst(start)
}
