// Installs each package where nothing is, and runs a first command from there: alice has the npm package or the single file,
// bob is a Debian with the .deb and nothing else.
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { OUT, ran } from './place.mjs'

const RELEASE = 'bookworm'
const KEYS = ['agent.key', 'machine.key', 'contacts.json']

const archive = () => {
  const said = spawnSync('apt-get', ['indextargets', '--format', '$(SITE) $(CREATED_BY)'], { encoding: 'utf8' })
  return /^(\S*\/debian) Packages$/m.exec(said.stdout ?? '')?.[1]
}

const cannotInstall = () => {
  if (process.getuid() !== 0) return 'needs root'
  if (spawnSync('debootstrap', ['--version']).error) return 'needs debootstrap'
  return archive() === undefined ? 'needs an apt-get with an archive of Debian' : undefined
}

/** As after `env -i`, with a home of its own. */
const bare = (home, path = '') => ({ HOME: home, PATH: `${path}/usr/sbin:/usr/bin:/sbin:/bin` })

/** npm's own settings stay, which say where packages come from. */
const NPM_SETTINGS = /^(npm_config_(registry|userconfig|cafile)|NODE_EXTRA_CA_CERTS)$/i
const forNpm = (home, path) => ({
  ...bare(home, path),
  ...Object.fromEntries(Object.entries(process.env).filter(([key]) => NPM_SETTINGS.test(key))),
})

const step = (name) => console.log(`ok  ${name}, after ${(performance.now() / 1000).toFixed(0)} s`)

/** Answers the directory of its programs. */
const installed = (place, version) => {
  const home = join(place, 'npm')
  mkdirSync(home)
  const path = `${join(process.execPath, '..')}:`
  ran('npm', ['install', '--global', '--prefix', home, '--no-audit', '--no-fund', join(OUT, `x0x-${version}.tgz`)], {
    env: forNpm(home, path),
    cwd: home,
  })
  const library = join(place, 'client')
  mkdirSync(library)
  writeFileSync(join(library, 'package.json'), '{"type":"module","private":true}\n')
  ran('npm', ['install', '--no-audit', '--no-fund', join(OUT, `x0x-client-${version}.tgz`)], { env: forNpm(library, path), cwd: library })
  const { packages } = JSON.parse(readFileSync(join(library, 'node_modules', '.package-lock.json'), 'utf8'))
  assert.deepEqual(Object.keys(packages), ['node_modules/x0x-client'], 'the library brings nothing along')
  const names = ran(process.execPath, ['-e', `import('x0x-client').then((it) => console.log(Object.keys(it).join(' ')))`], { cwd: library })
  assert.match(names, /\bconnect\b/, 'the library can be imported')
  step('npm package and library install into nothing')
  return join(home, 'bin')
}

/** A daemon whose line on standard output says that it is ready. */
const started = async (daemons, file, argv, options = {}) => {
  const child = spawn(file, argv, { ...options, stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(child, 'exit')
  daemons.push({ child, exited })
  for await (const part of child.stdout.iterator({ destroyOnReturn: false })) {
    const [, agent, machine] = /agent (\w+), machine (\w+),/.exec(String(part)) ?? []
    if (machine) return { agent, machine, stop: async () => (child.kill('SIGTERM'), exited) }
  }
  throw new Error(`${file} ${argv.join(' ')} did not start`)
}

/** A Debian in a directory, with the package. */
class Host {
  constructor(root, version) {
    this.root = root
    this.deb = `x0x_${version}_${{ x64: 'amd64', arm64: 'arm64' }[process.arch]}.deb`
    this.data = join(root, 'var/lib/x0x')
  }

  run(...argv) {
    return ran('chroot', [this.root, ...argv], { env: { ...bare('/root'), DEBIAN_FRONTEND: 'noninteractive' } })
  }

  x0x(...argv) {
    return this.run('setpriv', '--reuid=x0x', '--regid=x0x', '--clear-groups', 'x0x', '--data-dir', '/var/lib/x0x', ...argv)
  }

  start(daemons) {
    const daemon = [
      'x0xd',
      '--data-dir',
      '/var/lib/x0x',
      '--config',
      '/etc/x0x/config.toml',
      '--api-port',
      '0',
      '--listen',
      '/ip4/127.0.0.1/tcp/0',
    ]
    const argv = [this.root, 'setpriv', '--reuid=x0x', '--regid=x0x', '--clear-groups', ...daemon]
    return started(daemons, 'chroot', argv, { env: { ...bare('/var/lib/x0x'), X0X_MDNS: 'false' } })
  }

  install() {
    ran('cp', [join(OUT, this.deb), join(this.root, 'root')])
    this.run('dpkg', '--install', `/root/${this.deb}`)
  }

  hashes() {
    return this.run('sha256sum', ...KEYS.map((name) => `/var/lib/x0x/${name}`))
  }
}

const allow = (host, { agent, machine }) =>
  writeFileSync(
    join(host.root, 'etc/x0x/exec-acl.toml'),
    `[exec]\nenabled = true\naudit_log_path = "/var/log/x0x/exec.log"\ndefault_cwd = "/"\n[[exec.allow]]\ndescription = "alice"\nagent_id = "${agent}"\nmachine_id = "${machine}"\n[[exec.allow.commands]]\nargv = ["cat", "/etc/debian_version"]\n`,
  )

const onMesh = async (place, programs, host, daemons) => {
  const home = join(place, 'alice')
  const env = { ...bare(home, `${programs}:${join(process.execPath, '..')}:`), X0X_MDNS: 'false' }
  const data = ['--data-dir', home]
  mkdirSync(home, { mode: 0o700 })
  const alice = await started(daemons, join(programs, 'x0xd'), [...data, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0'], { env })
  allow(host, alice)
  let bob = await host.start(daemons)
  const x0x = (...argv) => ran(join(programs, 'x0x'), [...data, ...argv], { env })
  host.x0x('contacts', 'import', x0x('card').trim(), '--as', 'alice')
  host.x0x('contacts', 'trust', 'alice', 'trusted')
  host.x0x('contacts', 'pin', 'alice', alice.machine)
  x0x('contacts', 'import', host.x0x('card').trim(), '--as', 'bob')
  const release = readFileSync(join(host.root, 'etc/debian_version'), 'utf8')
  const asked = ['exec', 'bob', '--', 'cat', '/etc/debian_version']
  assert.equal(x0x(...asked), release)
  step('a first command from the npm package on a host with the .deb')
  // Whoever can write where it is started must not tell it whom to ask.
  writeFileSync(join(home, '.env'), 'X0X_API=http://127.0.0.1:1\n')
  const single = (...argv) => ran(join(OUT, `x0x-linux-${process.arch}`), [...data, ...argv], { env: bare(home), cwd: home })
  assert.equal(single(...asked), release)
  assert.match(single('contacts', 'list'), /bob/)
  step('a first command from the single file')
  await bob.stop()
  const before = host.hashes()
  host.install()
  assert.equal(host.hashes(), before, 'an upgrade keeps keys and contacts')
  assert.match(readFileSync(join(host.root, 'etc/x0x/exec-acl.toml'), 'utf8'), /description = "alice"/, 'and what was configured')
  bob = await host.start(daemons)
  x0x('contacts', 'import', host.x0x('card').trim(), '--as', 'bob')
  assert.equal(x0x(...asked), release)
  assert.match(ran('chroot', [host.root, 'cat', '/var/log/x0x/exec.log']), /"event":"reques/)
  step('an upgrade keeps keys, contacts, configuration and journal')
  await bob.stop()
  await alice.stop()
}

const removed = (host) => {
  host.run('dpkg', '--remove', 'x0x')
  for (const gone of ['usr/bin/x0x', 'usr/lib/x0x', 'usr/lib/systemd/system/x0xd.service', 'usr/share/man/man1/x0x.1.gz'])
    assert.ok(!existsSync(join(host.root, gone)), `${gone} is left`)
  for (const kept of [...KEYS.map((name) => `var/lib/x0x/${name}`), 'var/log/x0x/exec.log', 'etc/x0x/exec-acl.toml'])
    assert.ok(existsSync(join(host.root, kept)), `${kept} is gone`)
  host.run('dpkg', '--purge', 'x0x')
  for (const gone of ['var/lib/x0x', 'var/log/x0x', 'etc/x0x']) assert.ok(!existsSync(join(host.root, gone)), `${gone} is left`)
  assert.doesNotMatch(readFileSync(join(host.root, 'etc/passwd'), 'utf8'), /^x0x/m)
  step('removed, and purged')
}

/** `version`: of the packages in dist/packages; `lintian`: that too, which takes a minute. Throws at the first thing that is not as it should be. */
export const checkPackages = async (version, lintian) => {
  ran('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: OUT })
  const place = mkdtempSync(join(tmpdir(), 'x0x-packages-'))
  const daemons = []
  try {
    const programs = installed(place, version)
    const why = cannotInstall()
    if (why !== undefined) return console.log(`the .deb is not tried: ${why}`)
    const host = new Host(join(place, 'root'), version)
    ran('debootstrap', ['--variant=minbase', RELEASE, host.root, archive()])
    host.install()
    step('the .deb installs into an empty root')
    await onMesh(place, programs, host, daemons)
    removed(host)
    if (lintian) {
      ran('lintian', ['--allow-root', '--fail-on', 'error', join(OUT, host.deb)])
      step('lintian finds no error')
    }
  } finally {
    for (const { child, exited } of daemons)
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL')
        await exited
      }
    rmSync(place, { recursive: true, force: true })
  }
}
