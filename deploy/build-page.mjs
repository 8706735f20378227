// Builds the files that a browser loads from `x0x ui`.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'

import { packageRoot } from './runtime.mjs'

const WEB = join(packageRoot, 'src', 'web')
const SCRIPTS = { 'page.js': 'main.tsx', 'sign-in.js': 'sign-in.ts' }
const STATIC = ['page.html', 'sign-in.html', 'page.css', 'icon.svg']
/** Supports browsers of the last three years. */
const TARGET = ['chrome120', 'firefox121', 'safari17']

const script = async (entry) => {
  const { build } = await import('esbuild')
  const { outputFiles, metafile } = await build({
    stdin: { contents: `import { main } from './${entry}'\nvoid main()`, resolveDir: WEB, sourcefile: 'start.js' },
    absWorkingDir: packageRoot,
    bundle: true,
    platform: 'browser',
    format: 'esm',
    target: TARGET,
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
    minify: true,
    write: false,
    metafile: true,
    logLevel: 'warning',
  })
  return { bytes: Buffer.from(outputFiles[0].contents), metafile }
}

/** Returns the files of the page by name, in memory, and the metafiles of esbuild. */
export const buildPage = async () => {
  const scripts = await Promise.all(Object.entries(SCRIPTS).map(async ([name, entry]) => [name, await script(entry)]))
  const texts = await Promise.all(STATIC.map(async (name) => [name, await readFile(join(WEB, name))]))
  return {
    files: Object.fromEntries([...scripts.map(([name, { bytes }]) => [name, bytes]), ...texts]),
    metafiles: scripts.map(([, { metafile }]) => metafile),
  }
}
