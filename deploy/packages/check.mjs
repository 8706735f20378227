// Installs each package on a clean system and runs a first command from it. alice has the npm package, then the single file. bob is a plain
// Debian, then has the one-file rexd, then the .deb. The image has its own alice, bob and carol.
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

import { checkCompose } from './check-compose.mjs'
import { checkEnrol } from './check-enrol.mjs'
import { bare, cannotContain, cannotInstall, Host, makeRoot, started, X0XD_READY } from './check-host.mjs'
import { checkKubernetes } from './check-kubernetes.mjs'
import { checkOneFileRexd } from './check-rexd.mjs'
import { checkTests } from './check-tests.mjs'
import { makeImage } from './image.mjs'
import { OUT, ran } from './place.mjs'

/** Variables that tell npm where packages come from. */
const NPM_SETTINGS = /^(npm_config_(registry|userconfig|cafile)|NODE_EXTRA_CA_CERTS)$/i
const forNpm = (home, path) => ({
  ...bare(home, path),
  ...Object.fromEntries(Object.entries(process.env).filter(([key]) => NPM_SETTINGS.test(key))),
})

const step = (name) => console.log(`ok  ${name}, after ${(performance.now() / 1000).toFixed(0)} s`)

/** Installs the npm package and the library. Returns the directory of the programs. */
const installed = async (place, version) => {
  const home = join(place, 'npm')
  mkdirSync(home)
  const path = `${join(process.execPath, '..')}:`
  await ran('npm', ['install', '--global', '--prefix', home, '--no-audit', '--no-fund', join(OUT, `x0x-${version}.tgz`)], {
    env: forNpm(home, path),
    cwd: home,
  })
  const library = join(place, 'client')
  mkdirSync(library)
  writeFileSync(join(library, 'package.json'), '{"type":"module","private":true}\n')
  await ran('npm', ['install', '--no-audit', '--no-fund', join(OUT, `x0x-client-${version}.tgz`)], {
    env: forNpm(library, path),
    cwd: library,
  })
  const { packages } = JSON.parse(readFileSync(join(library, 'node_modules', '.package-lock.json'), 'utf8'))
  assert.deepEqual(Object.keys(packages), ['node_modules/x0x-client'], 'the library brings nothing along')
  const names = await ran(process.execPath, ['-e', `import('x0x-client').then((it) => console.log(Object.keys(it).join(' ')))`], {
    cwd: library,
  })
  assert.match(names, /\bconnect\b/, 'the library can be imported')
  step('the npm package and the library install into empty directories')
  return join(home, 'bin')
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
  const flags = [...data, '--api-port', '0', '--listen', '/ip4/127.0.0.1/tcp/0']
  const alice = await started(daemons, [join(programs, 'x0xd'), ...flags], { env }, X0XD_READY)
  allow(host, alice)
  let bob = await host.start(daemons)
  const x0x = (...argv) => ran(join(programs, 'x0x'), [...data, ...argv], { env })
  await host.x0x('contacts', 'import', (await x0x('card')).trim(), '--as', 'alice')
  await host.x0x('contacts', 'trust', 'alice', 'trusted')
  await host.x0x('contacts', 'pin', 'alice', alice.machine)
  await x0x('contacts', 'import', (await host.x0x('card')).trim(), '--as', 'bob')
  const release = readFileSync(join(host.root, 'etc/debian_version'), 'utf8')
  const asked = ['exec', 'bob', '--', 'cat', '/etc/debian_version']
  assert.equal(await x0x(...asked), release)
  step('a first command from the npm package on a host with the .deb')
  // A file in the working directory must not choose the daemon that the program asks, because others may write there.
  writeFileSync(join(home, '.env'), 'X0X_API=http://127.0.0.1:1\n')
  const single = (...argv) => ran(join(OUT, `x0x-linux-${process.arch}`), [...data, ...argv], { env: bare(home), cwd: home })
  assert.equal(await single(...asked), release)
  assert.match(await single('contacts', 'list'), /bob/)
  step('a first command from the single file')
  await bob.stop()
  const journal = () => readFileSync(join(host.root, 'var/log/x0x/exec.log'), 'utf8')
  const [before, told] = [await host.hashes(), journal()]
  assert.match(told, /"event":"request/)
  await host.upgrade('99.0.0')
  assert.equal(await host.hashes(), before, 'an upgrade keeps keys and contacts')
  assert.match(readFileSync(join(host.root, 'etc/x0x/exec-acl.toml'), 'utf8'), /description = "alice"/, 'and what was configured')
  bob = await host.start(daemons)
  await x0x('contacts', 'import', (await host.x0x('card')).trim(), '--as', 'bob')
  assert.equal(await x0x(...asked), release)
  assert.ok(journal().startsWith(told), 'an upgrade keeps the journal')
  step('an upgrade keeps keys, contacts, configuration and audit log')
  await bob.stop()
  await alice.stop()
}

const removed = async (host) => {
  await host.run('dpkg', '--remove', 'x0x')
  for (const gone of ['usr/bin/x0x', 'usr/lib/x0x', 'usr/lib/systemd/system/x0xd.service', 'usr/share/man/man1/x0x.1.gz'])
    assert.ok(!existsSync(join(host.root, gone)), `${gone} is left`)
  for (const kept of [...host.kept, 'var/log/x0x/exec.log', 'etc/x0x/exec-acl.toml'])
    assert.ok(existsSync(join(host.root, kept)), `${kept} is gone`)
  await host.run('dpkg', '--purge', 'x0x')
  for (const gone of ['var/lib/x0x', 'var/log/x0x', 'etc/x0x']) assert.ok(!existsSync(join(host.root, gone)), `${gone} is left`)
  assert.doesNotMatch(readFileSync(join(host.root, 'etc/passwd'), 'utf8'), /^x0x/m)
  step('the .deb is removed and purged')
}

const asHost = async (host, programs, { place, daemons }) => {
  await checkOneFileRexd(host.root, daemons)
  step('the one-file rexd serves commands, files, a terminal and TLS on a host without Node.js, and its processes end with it')
  await host.install(join(OUT, host.deb))
  step('the .deb installs into an empty root')
  await onMesh(place, await programs, host, daemons)
  await removed(host)
}

const asImage = async (made, { place, daemons }) => {
  const image = await made
  try {
    step('the steps of the Dockerfile build the image')
    const tried = async (name, check) => {
      mkdirSync(join(place, name))
      await check(join(place, name), image, daemons)
    }
    await tried('compose', checkCompose)
    await tried('kubernetes', checkKubernetes)
    step('three nodes of the compose file and a pod of the DaemonSet serve, pass their health checks and stop')
    await tried('enrol', checkEnrol)
    step('containers and pods enrol and load a signed ACL with the examples of the pages')
  } finally {
    await image.remove()
  }
}

/** Prepares the steps that take long and need no packages, before the packages are made. */
export class Check {
  #place = mkdtempSync(join(tmpdir(), 'x0x-packages-'))
  #daemons = []
  #host
  #image

  constructor() {
    const why = cannotInstall()
    if (why !== undefined) {
      console.log(`only the npm packages are tested: ${why}`)
      return
    }
    const root = join(this.#place, 'root')
    const debian = join(this.#place, 'debian')
    this.#host = makeRoot(root).then(() => ran('cp', ['-a', root, debian]))
    const cannot = cannotContain()
    if (cannot === undefined) this.#image = this.#host.then(() => makeImage(this.#place, debian))
    else console.log(`the image is not tested: ${cannot}`)
    // A failure is reported when `run` waits for it.
    for (const begun of [this.#host, this.#image]) begun?.catch(() => undefined)
  }

  /**
   * Checks the packages of this version in dist/packages, and throws the first failure. `lintian` also runs lintian, which takes a minute.
   */
  async run(version, lintian) {
    await ran('sha256sum', ['--check', '--quiet', 'SHA256SUMS'], { cwd: OUT })
    const here = { place: this.#place, daemons: this.#daemons }
    const programs = installed(this.#place, version)
    const steps = [programs, checkTests().then(() => step('tests of x0x and rexd pass with the single files'))]
    if (this.#host !== undefined) {
      const host = new Host(join(this.#place, 'root'), version)
      steps.push(this.#host.then(() => asHost(host, programs, here)))
      if (lintian) steps.push(ran('lintian', ['--allow-root', '--fail-on', 'error', join(OUT, host.deb)]))
    }
    if (this.#image !== undefined) steps.push(asImage(this.#image, here))
    const failed = (await Promise.allSettled(steps)).find(({ status }) => status === 'rejected')
    if (failed !== undefined) throw failed.reason
  }

  /** Removes everything, even if `run` was never called. */
  async end() {
    await Promise.allSettled([this.#host, this.#image])
    for (const { kill, exited } of this.#daemons) {
      kill()
      await exited
    }
    rmSync(this.#place, { recursive: true, force: true })
  }
}
