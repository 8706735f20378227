// A Debian host in a directory, for testing packages.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { basename, join } from 'node:path'

import { DEBIAN, relabelled } from './deb.mjs'
import { ran } from './place.mjs'

const RELEASE = 'bookworm'
const KEYS = ['agent.key', 'machine.key', 'contacts.json']

const archive = () => {
  const said = spawnSync('apt-get', ['indextargets', '--format', '$(SITE) $(CREATED_BY)'], { encoding: 'utf8' })
  return /^(\S*\/debian) Packages$/m.exec(said.stdout ?? '')?.[1]
}

/** The reason why such a host is not possible on this machine, or undefined. */
export const cannotInstall = () => {
  if (process.getuid() !== 0) return 'needs root'
  for (const tool of ['debootstrap', 'bwrap', 'setpriv']) if (spawnSync(tool, ['--version']).error) return `needs ${tool}`
  return archive() === undefined ? 'needs an apt-get with an archive of Debian' : undefined
}

/** The reason why images cannot be built and run on this machine, or undefined. */
export const cannotContain = () => {
  for (const tool of ['podman', 'ip', 'nsenter']) if (spawnSync(tool, ['-V']).error) return `needs ${tool}`
  return undefined
}

/** Installs a minimal Debian into an empty directory. */
export const makeRoot = (root) => ran('debootstrap', ['--variant=minbase', RELEASE, root, archive()])

/** The environment after `env -i`, with a home directory. */
export const bare = (home, path = '') => ({ HOME: home, PATH: `${path}/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin` })

/** Arguments that come before a program to run it as root on the host in this directory, with devices and processes. */
export const onHost = (root) => [
  'bwrap',
  '--bind',
  root,
  '/',
  '--dev',
  '/dev',
  '--proc',
  '/proc',
  '--die-with-parent',
  '--chdir',
  '/',
  '--',
]

/** Starts a daemon and waits for the line that reports that it is ready. The check kills `daemons` at its end, even if it fails. */
export const started = async (daemons, [file, ...argv], options, ready) => {
  const child = spawn(file, argv, { ...options, stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(child, 'exit')
  daemons.push({ kill: () => child.kill('SIGKILL'), exited })
  let said = ''
  for await (const part of child.stdout.iterator({ destroyOnReturn: false })) {
    said += part
    const found = ready.exec(said)
    if (found) return { ...found.groups, child, stop: async (signal = 'SIGTERM') => (child.kill(signal), exited) }
  }
  throw new Error(`${file} ${argv.join(' ')} did not start: ${said}`)
}

export const X0XD_READY = /agent (?<agent>\w+), machine (?<machine>\w+),/

export class Host {
  constructor(root, version) {
    this.root = root
    this.deb = `x0x_${version}_${DEBIAN[process.arch]}.deb`
    this.kept = KEYS.map((name) => `var/lib/x0x/${name}`)
  }

  run(...argv) {
    return ran('chroot', [this.root, ...argv], { env: { ...bare('/root'), DEBIAN_FRONTEND: 'noninteractive' } })
  }

  x0x(...argv) {
    return this.run('setpriv', '--reuid=x0x', '--regid=x0x', '--clear-groups', 'x0x', '--data-dir', '/var/lib/x0x', ...argv)
  }

  start(daemons) {
    const flags = ['--data-dir', '/var/lib/x0x', '--config', '/etc/x0x/config.toml', '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
    const argv = ['chroot', this.root, 'setpriv', '--reuid=x0x', '--regid=x0x', '--clear-groups', 'x0xd', ...flags]
    return started(daemons, argv, { env: { ...bare('/var/lib/x0x'), X0X_MDNS: 'false' } }, X0XD_READY)
  }

  /** `file` is a path on this machine. */
  async install(file) {
    const there = join('/root', basename(file))
    if (file !== join(this.root, there)) await ran('cp', [file, join(this.root, there)])
    await this.run('dpkg', '--install', there)
  }

  /** Installs the same package with a later version number. */
  async upgrade(version) {
    await this.install(await relabelled(join(this.root, 'root', this.deb), version))
    const installed = await this.run('dpkg-query', '--show', '--showformat=${Version}', 'x0x')
    if (installed !== version) throw new Error(`after the upgrade there is ${installed}`)
  }

  hashes() {
    return this.run('sha256sum', ...this.kept.map((path) => `/${path}`))
  }
}
