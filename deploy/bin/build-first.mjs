// For clones only. A packed package has its dist/ already.
import { accessSync, constants, existsSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'

const build = async () => {
  if (!existsSync(join(packageRoot, 'src'))) throw new Error('this package was packed without its dist/')
  try {
    accessSync(packageRoot, constants.W_OK)
  } catch {
    const error = new Error(`${packageRoot} is not yours to build in; its owner runs npm run build once`)
    throw Object.assign(error, { isNotOurs: true })
  }
  const { ensureInstalled } = await import('../install.mjs')
  const { buildAll } = await import('../build.mjs')
  await ensureInstalled()
  await buildAll()
}

/** Builds dist/ and then calls `goOn`. If the build fails, it prints how to build. */
export const buildFirst = async (goOn) => {
  try {
    await build()
  } catch (error) {
    console.error(`x0x could not be built: ${error.message}${error.isNotOurs ? '' : '\nIn a clone run: npm run build'}`)
    process.exitCode = 2
    return
  }
  await goOn()
}
