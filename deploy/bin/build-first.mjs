// Only in a clone: a package from a registry or a tarball has its dist/.
import { buildAll } from '../build.mjs'

/** Builds dist/, then goes on; says what to do where that cannot be. */
export const buildFirst = async (goOn) => {
  try {
    await buildAll()
  } catch (error) {
    console.error(`x0x is not built yet and could not be built now (${error.message.split('\n')[0]}).\nIn a clone run: npm run build`)
    process.exitCode = 2
    return
  }
  await goOn()
}
