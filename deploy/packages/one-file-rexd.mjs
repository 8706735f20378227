// Makes `rexd` as one file with its runtime inside, to copy to a host. It is the runtime of the tests, with the program written into it
// (Node's single executable applications). With Bun, the tests of terminals failed. A self-extracting archive would have to trust the files
// that an earlier start left on the disk.
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { bundle } from '../build.mjs'
import { packageRoot } from '../runtime.mjs'
import { pinnedFile, pinnedRuntime, POSTJECT } from './pinned.mjs'
import { ARCHITECTURES, OUT, ran, WORK } from './place.mjs'

/** Node checks this marker to find out whether the file contains a program. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2'
const dist = (name) => join(packageRoot, 'dist', name)

const START = {
  entry: 'deploy/packages/start-one-file.mjs',
  format: 'cjs',
  target: 'node24',
  banner: '',
  supported: { 'dynamic-import': false },
}

/** Makes the data that is written into the runtime. Compiled code is only included for the architecture of this machine. */
const blobOf = async (place, arch, { terminals, koffi }) => {
  const compiled = join(place, 'rexd.cache')
  writeFileSync(compiled, arch === process.arch ? readFileSync(dist('rexd.cache')) : '')
  const configuration = {
    // The path becomes part of the file, so it must not depend on the directory of the sources.
    main: 'start.cjs',
    output: join(place, `${arch}.blob`),
    disableExperimentalSEAWarning: true,
    // The runtime ignores NODE_OPTIONS, and all arguments belong to the program.
    execArgvExtension: 'none',
    assets: {
      'rexd.cjs': dist('rexd.cjs'),
      'rexd.cache': compiled,
      'terminal-host.cjs': dist('terminal-host.cjs'),
      'pty.node': join(terminals.path, 'pty.node'),
      'koffi.node': koffi.path,
    },
  }
  const file = join(place, `${arch}.json`)
  writeFileSync(file, JSON.stringify(configuration))
  await ran(process.execPath, ['--experimental-sea-config', file], { cwd: place })
  return configuration.output
}

/** Runs in a separate process, because it takes seconds and prints a warning for each unnamed note of the file. */
const INJECT = `const [, api, file, blob, sentinelFuse] = process.argv
require(api).inject(file, 'NODE_SEA_BLOB', require('node:fs').readFileSync(blob), { sentinelFuse })`

/** Makes `rexd-linux-ARCH` for each architecture. `inside` lists the parts of dist/. */
export const makeOneFileRexd = async (inside) => {
  const place = join(WORK, 'rexd')
  mkdirSync(place, { recursive: true })
  writeFileSync(join(place, 'start.cjs'), (await bundle(START)).text)
  const api = await pinnedFile(`postject@${POSTJECT}`, 'dist/api.js')
  const made = ARCHITECTURES.map(async (arch) => {
    const name = `rexd-linux-${arch}`
    const file = join(OUT, name)
    const { node, parts, ...native } = await pinnedRuntime(arch)
    copyFileSync(node, file)
    chmodSync(file, 0o755)
    const blob = await blobOf(place, arch, native)
    await ran(process.execPath, ['--eval', INJECT, api, file, blob, FUSE])
    return { names: [name], inside: [...inside, ...parts] }
  })
  return Promise.all(made)
}
