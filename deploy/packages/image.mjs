// The image of the Dockerfile, built by its own steps from the sources: podman runs them in a chroot, for which it needs no engine
// to be at hand. Its base is a Debian with the pinned runtime, in place of the one that a registry would have.
import { cpSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { pinnedRuntime } from './pinned.mjs'
import { ran } from './place.mjs'

const BASE = 'localhost/node:24-slim'

/** Where npm stands, and what it is told of the network here. */
const npm = async () => {
  const setting = async (name) => (await ran('npm', ['config', 'get', name])).trim()
  const given = await Promise.all(['registry', 'cafile'].map(async (name) => [name, await setting(name)]))
  const known = given.filter(([, value]) => !['', 'null', 'undefined'].includes(value))
  return {
    package: dirname(dirname(realpathSync(process.env.npm_execpath ?? (await ran('sh', ['-c', 'command -v npm'])).trim()))),
    cafile: known.find(([name]) => name === 'cafile')?.[1],
    cache: await setting('cache'),
    settings: [...known.map(([name, value]) => `${name}=${value}\n`), 'prefer-offline=true\n'].join(''),
  }
}

/** Lays what `FROM node:24-slim` has, besides a Debian, over one. */
const addRuntime = async (place, { package: directory, cafile, settings }) => {
  const local = join(place, 'usr/local')
  for (const name of ['bin', 'etc', 'lib/node_modules']) mkdirSync(join(local, name), { recursive: true })
  cpSync((await pinnedRuntime(process.arch)).node, join(local, 'bin/node'))
  cpSync(directory, join(local, 'lib/node_modules/npm'), { recursive: true, dereference: true })
  symlinkSync('../lib/node_modules/npm/bin/npm-cli.js', join(local, 'bin/npm'))
  writeFileSync(join(local, 'etc/npmrc'), settings)
  if (cafile === undefined) return
  mkdirSync(join(place, dirname(cafile)), { recursive: true })
  cpSync(cafile, join(place, cafile), { dereference: true })
}

/**
 * `debian`: a directory of one, which this takes. Answers that of the image's files, which may be written, and what it says of itself.
 * `derive` builds an image of the Dockerfile in a directory, which may add no file to this one.
 */
export const makeImage = async (place, debian) => {
  const ours = await npm()
  await addRuntime(debian, ours)
  const podman = (...words) =>
    ran('podman', [`--root=${place}/store`, `--runroot=${place}/run`, '--storage-driver=overlay', '--cgroup-manager=cgroupfs', ...words])
  await ran('tar', ['-cf', `${debian}.tar`, '-C', debian, '.'])
  await podman('import', '--quiet', `${debian}.tar`, BASE)
  const how = ['--isolation=chroot', '--network=host', '--pull=never', '--layers=false', '--format=docker']
  await podman('build', ...how, `--volume=${ours.cache}:/root/.npm`, '--tag=localhost/x0x', packageRoot)
  const inspect = async (name) => JSON.parse(await podman('image', 'inspect', name))[0]
  const { Config: config, Healthcheck: health } = await inspect('localhost/x0x')
  await podman('create', '--name=x0x', 'localhost/x0x')
  const root = (await podman('mount', 'x0x')).trim()
  // Its storage is mounted on itself for as long as nobody takes that away.
  const remove = async () => ran('umount', [root, join(place, 'store', 'overlay')])
  const derive = async (directory, name) => {
    await podman('build', ...how, `--tag=localhost/${name}`, directory)
    return { root, health, config: (await inspect(`localhost/${name}`)).Config }
  }
  return { root, config, health, derive, remove }
}
