// `rexd` as one file with its runtime inside, for a host that it is copied to. The runtime is the one that the tests run under, with
// what it shall run written into it (Node's single executable applications). Under Bun, terminals failed the tests; an archive that
// unpacks itself would have to trust what an earlier start left on the disk.
import { chmodSync, copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { bundle } from '../build.mjs'
import { packageRoot } from '../runtime.mjs'
import { pinnedFile, pinnedRuntime, POSTJECT } from './pinned.mjs'
import { ARCHITECTURES, OUT, ran, WORK } from './place.mjs'

/** Node looks whether this is set where its part of the file stands. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2'
const dist = (name) => join(packageRoot, 'dist', name)

const START = {
  entry: 'deploy/packages/start-one-file.mjs',
  format: 'cjs',
  target: 'node24',
  banner: '',
  supported: { 'dynamic-import': false },
}

/** What is written into the runtime of this architecture; how it was compiled is of the one that it was built on. */
const blobOf = async (place, arch, { terminals, koffi }) => {
  const compiled = join(place, 'rexd.cache')
  writeFileSync(compiled, arch === process.arch ? readFileSync(dist('rexd.cache')) : '')
  const configuration = {
    // The path becomes a part of the file, so it must not depend on where the sources are.
    main: 'start.cjs',
    output: join(place, `${arch}.blob`),
    disableExperimentalSEAWarning: true,
    // Neither NODE_OPTIONS nor a first word of ours is for the runtime.
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

/** In a process of its own: it works for seconds, and says of every note of the file that it has no name. */
const INJECT = `const [, api, file, blob, sentinelFuse] = process.argv
require(api).inject(file, 'NODE_SEA_BLOB', require('node:fs').readFileSync(blob), { sentinelFuse })`

/** Makes `rexd-linux-ARCH` for each architecture. `inside`: of dist/. */
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
