// Goes on with a bundle of dist/ under the runtime that it needs.
import { existsSync, realpathSync } from 'node:fs'
import { join } from 'node:path'

import { findRuntime, missingRuntimeText, packageRoot, runInstead } from '../runtime.mjs'
import { buildFirst } from './build-first.mjs'

/** `file`: of dist/. The words of the command line are passed on. */
export const startBundle = async (file) => {
  const bundle = join(packageRoot, 'dist', file)
  const start = async () => {
    const runtime = findRuntime()
    if (!runtime) {
      console.error(missingRuntimeText())
      process.exitCode = 2
    } else if (runtime === realpathSync(process.execPath)) {
      // A channel of whoever started us is no launcher's: the daemon would end with it.
      process.send = undefined
      await import(bundle)
    } else if (process.execve) {
      // Replaces this process, where the running Node can; it would warn that the function is young.
      process.removeAllListeners('warning')
      process.execve(runtime, [runtime, bundle, ...process.argv.slice(2)], process.env)
    } else {
      process.exitCode = await runInstead(runtime, [bundle, ...process.argv.slice(2)], process.env, { tied: true })
    }
  }
  if (existsSync(bundle)) await start()
  else await buildFirst(start)
}
