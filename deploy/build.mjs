// Bundles the command line and the daemon into dist/. Runs on any Node >= 20.
import { chmod, mkdir, rename, rm, writeFile } from 'node:fs/promises'
import { existsSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from './runtime.mjs'

const SHEBANG = '#!/usr/bin/env node\n'
/** The bundled CommonJS packages expect these three, which ES modules lack. */
const ESM_PRELUDE = [
  "import { createRequire as __createRequire } from 'node:module'",
  'const require = __createRequire(import.meta.url)',
  'const __filename = import.meta.filename, __dirname = import.meta.dirname',
].join('\n')

export const TARGETS = {
  x0x: { entry: 'src/cli/main.ts', out: 'dist/x0x.cjs', format: 'cjs', target: 'node20', banner: SHEBANG },
  x0xd: { entry: 'src/daemon/main.ts', out: 'dist/x0xd.mjs', format: 'esm', target: 'node24', banner: ESM_PRELUDE },
}

/** A main module exports `main(argv, env)` and does nothing when imported: this is who calls it. */
const starter = (entry) => `
import { main } from './${entry}'
main(process.argv.slice(2), process.env).then(
  (status) => { process.exitCode = status },
  (error) => { console.error(error); process.exitCode = 70 },
)`

/** Builds one target in memory; answers its text and esbuild's account of what went in. */
export const bundle = async ({ entry, format, target, banner }) => {
  const { build } = await import('esbuild')
  const result = await build({
    stdin: { contents: starter(entry), resolveDir: packageRoot, sourcefile: 'start.js' },
    absWorkingDir: packageRoot,
    bundle: true,
    platform: 'node',
    format,
    target,
    banner: { js: banner },
    // Prefer ES modules: what is not used is left out.
    mainFields: ['module', 'main'],
    legalComments: 'none',
    write: false,
    metafile: true,
    logLevel: 'warning',
  })
  return { text: result.outputFiles[0].text, metafile: result.metafile }
}

const buildTarget = async (target) => {
  const { text } = await bundle(target)
  const out = join(packageRoot, target.out)
  const temporary = `${out}.${process.pid}.tmp`
  try {
    await writeFile(temporary, text)
    await chmod(temporary, 0o755)
    await rename(temporary, out)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
}

/** Builds everything, whole files at a time, so that a program started meanwhile sees the old or the new. */
export const buildAll = async () => {
  const missing = Object.values(TARGETS).filter(({ entry }) => !existsSync(join(packageRoot, entry)))
  if (missing.length > 0) throw new Error(`nothing to build from: ${missing.map(({ entry }) => entry).join(', ')} is missing`)
  await mkdir(join(packageRoot, 'dist'), { recursive: true })
  await Promise.all(Object.values(TARGETS).map(buildTarget))
}
