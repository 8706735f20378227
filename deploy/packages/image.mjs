// Builds the image of the Dockerfile from the sources, with the steps of that file. podman runs them in a chroot, so no container engine is
// needed. The base image is a Debian with the pinned runtime, instead of one from a registry.
import { cpSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { pinnedRuntime } from './pinned.mjs'
import { ran } from './place.mjs'

const BASE = 'localhost/node:24-slim'

/** The path of npm, and its settings for the network of this machine. */
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

/** Adds the files of `FROM node:24-slim` to a plain Debian. */
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
 * Builds the image. `debian` is the directory of a Debian, which is changed. Returns the directory of the image's files, which may be
 * written, and its configuration. `derive` builds an image of a Dockerfile in a directory, which must not add files to this image.
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
  // podman mounts its storage on itself, and only `umount` ends that.
  const remove = async () => ran('umount', [root, join(place, 'store', 'overlay')])
  const derive = async (directory, name) => {
    await podman('build', ...how, `--tag=localhost/${name}`, directory)
    return { root, health, config: (await inspect(`localhost/${name}`)).Config }
  }
  return { root, config, health, derive, remove }
}
