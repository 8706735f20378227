// Makes the command line as one file with its runtime inside, for machines that need no other files.
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'

import { bundle, TARGETS } from '../build.mjs'
import { packagesIn } from '../licences.mjs'
import { packageRoot } from '../runtime.mjs'
import { BUN, pinnedFile } from './pinned.mjs'
import { ARCHITECTURES, OUT, ran, WORK } from './place.mjs'

/** Bun's names of the architectures. */
const THEIRS = { x64: 'x64', arm64: 'aarch64' }

/** Modules that are replaced if the runtime is Bun. */
const STDIN = [/\/stdin-data\.ts$/, 'bun-stdin.mjs']
const INSTEAD = [STDIN, [/\/light-hash\.ts$/, 'bun-hash.mjs'], [/^node:(net|tty)$/, 'bun-net.mjs']]
const forBun = (instead) => ({
  name: 'for-bun',
  setup: ({ onResolve }) => {
    for (const [filter, name] of instead) {
      const path = join(packageRoot, 'deploy', 'packages', name)
      onResolve({ filter }, ({ importer }) => (importer === path ? null : { path }))
    }
  },
})

/** Exit status of a program that ends before it sets another one. */
const UNTOLD = 'process.exitCode = 70'

/** The bundle that starts first, and the one that it loads for all commands except a plain exec. */
const PARTS = [
  { ...TARGETS.x0x, banner: UNTOLD, plugins: [forBun(INSTEAD)] },
  { ...TARGETS['x0x-other-commands'], plugins: [forBun([STDIN])] },
]

/** Makes `x0x-linux-ARCH` for each architecture. Returns the file names and the parts. */
export const makeSingleFiles = async () => {
  const sources = join(WORK, 'single-file')
  mkdirSync(sources, { recursive: true })
  const bundles = await Promise.all(PARTS.map(bundle))
  PARTS.forEach(({ out }, i) => writeFileSync(join(sources, basename(out)), bundles[i].text))
  const bunFor = (arch) => pinnedFile(`@oven/bun-linux-${THEIRS[arch]}@${BUN}`, 'bin/bun')
  const bun = await bunFor(process.arch)
  const made = ARCHITECTURES.map(async (arch) => {
    const name = `x0x-linux-${arch}`
    // The program must not read a Bun configuration or a .env file in the working directory.
    const closed = ['--no-compile-autoload-dotenv', '--no-compile-autoload-bunfig']
    const how = [
      '--compile',
      '--minify',
      '--bytecode',
      '--format=cjs',
      `--target=bun-linux-${arch}`,
      `--compile-executable-path=${await bunFor(arch)}`,
    ]
    await ran(bun, ['build', ...how, ...closed, 'x0x.cjs', '--outfile', join(OUT, name)], { cwd: sources })
    return name
  })
  const names = await Promise.all(made)
  rmSync(sources, { recursive: true })
  const inside = await packagesIn(bundles.map(({ metafile }) => metafile))
  return { names, inside: [...inside, { name: 'bun', version: BUN, license: 'MIT' }] }
}
