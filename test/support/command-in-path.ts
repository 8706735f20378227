import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { tempDir } from './temp-dir.ts'

/** An environment in which `x0x` runs from the sources, without a daemon. */
export const commandInPath = async (t: TestContext): Promise<NodeJS.ProcessEnv> => {
  const bin = await tempDir(t)
  const main = new URL('../../src/programs/x0x/main.ts', import.meta.url).href
  const run = `import { main } from ${JSON.stringify(main)}; process.exitCode = await main(process.argv.slice(1), process.env)`
  await writeFile(join(bin, 'x0x'), `#!/bin/sh\nexec '${process.execPath}' --input-type=module --eval '${run}' -- "$@"\n`)
  await chmod(join(bin, 'x0x'), 0o755)
  return { ...process.env, PATH: `${bin}:${process.env['PATH']}`, HOME: bin }
}
