// Makes the two npm packages. One has everything, and the other has only the SDK.
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { gzipSync } from 'node:zlib'

import { bundle, TARGETS } from '../build.mjs'
import { packagesIn } from '../licences.mjs'
import { packageRoot } from '../runtime.mjs'
import { OUT, ran, WORK } from './place.mjs'

const manifest = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'))

/** The time that npm gives each file of a package. */
const NPM_TIME = '1985-10-26T08:15:00Z'

/** Packs a tarball again, with file modes that do not depend on the user mask of the sources. */
const withPlainModes = async (tarball) => {
  const place = `${join(WORK, basename(tarball))}.tree`
  mkdirSync(place, { recursive: true })
  await ran('tar', ['-xzf', tarball, '-C', place, '--no-same-owner'])
  await ran('chmod', ['-R', 'u=rwX,go=rX', place])
  const how = ['--sort=name', `--mtime=${NPM_TIME}`, '--owner=0', '--group=0', '--numeric-owner', '--format=ustar']
  await ran('tar', [...how, '-cf', `${place}.tar`, '-C', place, 'package'])
  writeFileSync(tarball, gzipSync(readFileSync(`${place}.tar`), { level: 9 }))
}

/** Packs a directory. Returns the name of the tarball. */
const pack = async (directory) => {
  const [{ filename }] = JSON.parse(
    await ran('npm', ['pack', '--json', '--silent', '--ignore-scripts', '--pack-destination', OUT], { cwd: directory }),
  )
  await withPlainModes(join(OUT, filename))
  return filename
}

/** Packs all programs. The runtime is an optional dependency. `inside` lists the parts of dist/. */
export const makePackage = async (inside) => ({ names: [await pack(packageRoot)], inside })

/** Packs the SDK as one file with its types, without dependencies. */
export const makeClient = async () => {
  const place = join(WORK, 'client')
  mkdirSync(place, { recursive: true })
  const { version, license, keywords } = manifest
  const own = {
    name: 'x0x-client',
    version,
    description: 'Run commands, work with files and terminals over REXD: the library of x0x without its daemons.',
    keywords,
    license,
    type: 'module',
    exports: { '.': { types: './types/sdk/entry.d.ts', default: './client.mjs' }, './package.json': './package.json' },
    engines: manifest.engines,
  }
  writeFileSync(join(place, 'package.json'), `${JSON.stringify(own, null, 2)}\n`)
  for (const [from, to] of [
    ['dist/client.mjs', 'client.mjs'],
    ['dist/types', 'types'],
    ['docs/sdk.md', 'README.md'],
    ['LICENSE', 'LICENSE'],
    ['dist/THIRD-PARTY-LICENSES.txt', 'THIRD-PARTY-LICENSES.txt'],
  ])
    cpSync(join(packageRoot, from), join(place, to), { recursive: true })
  const { metafile } = await bundle(TARGETS.client)
  return { names: [await pack(place)], inside: await packagesIn([metafile]) }
}
