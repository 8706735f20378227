// Makes the Debian package, without root. It has the programs with their runtime, units, users and directories.
import { chmodSync, cpSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'

import { packageRoot } from '../runtime.mjs'
import { pinnedRuntime } from './pinned.mjs'
import { ARCHITECTURES, OUT, ran, sourceDate, WORK } from './place.mjs'

/** Debian's names of the architectures. */
export const DEBIAN = { x64: 'amd64', arm64: 'arm64' }
const LIB = 'usr/lib/x0x'
const PROGRAMS = { x0x: 'x0x.cjs', x0xd: 'x0xd.mjs', rexd: 'rexd.mjs', rexec: 'rexec.cjs' }
const UNITS = ['x0xd.service', 'x0xd-executor.service', 'x0xd-executor.socket', 'x0xd-network.service', 'x0xd-api.socket', 'rexd.service']
const CONFIGURATION = ['config.toml', 'exec-acl.toml']
const LOGROTATE = 'etc/logrotate.d/x0x'
const COMPLETIONS = {
  bash: 'usr/share/bash-completion/completions/x0x',
  zsh: 'usr/share/zsh/vendor-completions/_x0x',
  fish: 'usr/share/fish/vendor_completions.d/x0x.fish',
}
const manifest = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'))
const from = (...names) => join(packageRoot, ...names)
const debian = (name) => from('deploy', 'packages', 'debian', name)

/** Writes into the tree of the package. */
class Tree {
  constructor(root) {
    this.root = root
  }

  write(path, data, mode = 0o644) {
    const full = join(this.root, path)
    mkdirSync(dirname(full), { recursive: true })
    writeFileSync(full, data)
    chmodSync(full, mode)
  }

  copy(source, path, mode) {
    this.write(path, readFileSync(source), mode)
  }

  copyAll(source, path) {
    cpSync(source, join(this.root, path), { recursive: true, dereference: true })
  }

  /** The entries of the tree, parents first, without the control files. */
  *entries(path = '') {
    for (const name of readdirSync(join(this.root, path)).sort()) {
      const entry = join(path, name)
      if (entry === 'DEBIAN') continue
      yield entry
      if (lstatSync(join(this.root, entry)).isDirectory()) yield* this.entries(entry)
    }
  }
}

/** Returns the output of the built x0x with the runtime of this machine. */
const printed = (...words) => ran(process.execPath, [from('dist', 'x0x.cjs'), ...words])

const programs = async (tree, { node, terminals, koffi }, isOurs) => {
  tree.copy(node, `${LIB}/bin/node`, 0o755)
  for (const [name, path] of [
    ['@lydell/node-pty', from('node_modules', '@lydell', 'node-pty')],
    [terminals.name, terminals.path],
  ])
    tree.copyAll(path, `${LIB}/node_modules/${name}`)
  tree.copy(koffi.path, `${LIB}/node_modules/${koffi.name}`)
  tree.copyAll(from('deploy', 'bin'), `${LIB}/deploy/bin`)
  tree.copy(from('deploy', 'runtime.mjs'), `${LIB}/deploy/runtime.mjs`)
  tree.copy(from('package.json'), `${LIB}/package.json`)
  // Compiled code works only with the runtime of this machine.
  const apart = isOurs ? /dist\/(packages|types|client\.mjs|THIRD-PARTY)/ : /dist\/(packages|types|client\.mjs|THIRD-PARTY|[\w-]+\.cache)/
  cpSync(from('dist'), join(tree.root, LIB, 'dist'), {
    recursive: true,
    filter: (source) => !apart.test(source) && !source.endsWith('.tmp'),
  })
  for (const [name, script] of Object.entries(PROGRAMS)) {
    tree.write(`usr/bin/${name}`, `#!/bin/sh\nexec /${LIB}/bin/node /${LIB}/deploy/bin/${script} "$@"\n`, 0o755)
    tree.write(`usr/share/man/man1/${name}.1.gz`, gzipSync(await printed('man', name), { level: 9 }))
  }
  for (const [shell, path] of Object.entries(COMPLETIONS)) tree.write(path, await printed('completion', shell))
}

/** The text of a unit, with the paths of the runtime and the bundles in this package. */
const unitText = (unit) =>
  readFileSync(from('deploy', unit), 'utf8')
    .replaceAll('/usr/bin/node', `/${LIB}/bin/node`)
    .replaceAll('/usr/lib/node_modules/x0x', `/${LIB}`)

const system = (tree) => {
  for (const unit of UNITS) tree.write(`usr/lib/systemd/system/${unit}`, unitText(unit))
  tree.write('usr/lib/systemd/user/x0xd.service', unitText('x0xd-user.service'))
  tree.copy(from('deploy', 'x0x.sysusers'), 'usr/lib/sysusers.d/x0x.conf')
  tree.copy(from('deploy', 'x0x.tmpfiles'), 'usr/lib/tmpfiles.d/x0x.conf')
  tree.copy(from('deploy', 'x0x.logrotate'), LOGROTATE)
  for (const name of CONFIGURATION) tree.copy(from('deploy', name), `etc/x0x/${name}`)
  tree.copy(debian('lintian-overrides'), 'usr/share/lintian/overrides/x0x')
}

const documents = (tree, seconds, licence) => {
  const doc = 'usr/share/doc/x0x'
  tree.copy(debian('copyright'), `${doc}/copyright`)
  const others = [readFileSync(from('dist', 'THIRD-PARTY-LICENSES.txt')), readFileSync(licence)]
  tree.write(`${doc}/THIRD-PARTY-LICENSES.txt.gz`, gzipSync(Buffer.concat(others), { level: 9 }))
  tree.copy(from('deploy', 'rexd.toml'), `${doc}/examples/rexd.toml`)
  for (const name of ['grafana', 'prometheus']) tree.copyAll(from('deploy', name), `${doc}/examples/${name}`)
  const date = new Date(seconds * 1000).toUTCString().replace('GMT', '+0000')
  const change = `x0x (${manifest.version}) unstable; urgency=medium\n\n  * See https://keepachangelog.com: CHANGELOG.md of the sources.\n\n -- x0x maintainers <maintainers@x0x.invalid>  ${date}\n`
  tree.write(`${doc}/changelog.gz`, gzipSync(change, { level: 9 }))
}

const control = async (tree, arch) => {
  // Counts as dpkg-gencontrol does, because the size of a directory differs between file systems.
  const kibibytesOf = (info) => (info.isFile() ? Math.ceil(info.size / 1024) : 1)
  const size = [...tree.entries()].reduce((sum, path) => sum + kibibytesOf(lstatSync(join(tree.root, path))), 0)
  const fields = {
    Package: 'x0x',
    Version: manifest.version,
    Section: 'net',
    Priority: 'optional',
    Architecture: DEBIAN[arch],
    Maintainer: 'x0x maintainers <maintainers@x0x.invalid>',
    'Installed-Size': String(size),
    Depends: 'libc6 (>= 2.28), libgcc-s1, libstdc++6, passwd',
    Recommends: 'bubblewrap',
    Description: `allowlisted commands over a peer-to-peer mesh\n Every machine runs one daemon. It runs what its own file allows an agent\n on another machine to run: no SSH, no broker, no shell.\n .\n Nothing listens and nothing is allowed before an operator says so:\n /etc/x0x/exec-acl.toml, then systemctl enable --now x0xd`,
  }
  const text = Object.entries(fields).map(([name, value]) => `${name}: ${value}\n`)
  tree.write('DEBIAN/control', text.join(''))
  const conffiles = [...CONFIGURATION.map((name) => `etc/x0x/${name}`), LOGROTATE]
  tree.write('DEBIAN/conffiles', conffiles.map((path) => `/${path}\n`).join(''))
  for (const name of ['postinst', 'prerm', 'postrm']) tree.copy(debian(name), `DEBIAN/${name}`, 0o755)
  const files = [...tree.entries()].filter((path) => lstatSync(join(tree.root, path)).isFile() && !path.startsWith('etc/'))
  tree.write('DEBIAN/md5sums', await ran('md5sum', files, { cwd: tree.root }))
}

/**
 * Makes the package with the runtime of that architecture. `inside` lists the parts of dist/, and `into` is an existing directory. Returns
 * the file name of the package and its parts.
 */
export const makeDeb = async (inside, arch, into) => {
  const runtime = await pinnedRuntime(arch)
  const tree = new Tree(join(WORK, `deb-${arch}`))
  const seconds = await sourceDate()
  await programs(tree, runtime, arch === process.arch)
  system(tree)
  documents(tree, seconds, runtime.licence)
  await control(tree, arch)
  await ran('chmod', ['-R', 'u=rwX,go=rX', tree.root])
  // Scripts whose first line names a `node` are not executable, because no such `node` may exist. The runtime of the package starts them.
  await ran('find', [join(tree.root, LIB), '-type', 'f', '!', '-path', '*/bin/node', '-exec', 'chmod', '0644', '{}', '+'])
  const name = `x0x_${manifest.version}_${DEBIAN[arch]}.deb`
  // With two processors, gzip is a minute faster than xz, and the package is a quarter larger.
  const env = { ...process.env, SOURCE_DATE_EPOCH: String(seconds) }
  await ran('dpkg-deb', ['--root-owner-group', '-Zgzip', '-z6', '--build', tree.root, join(into, name)], { env })
  rmSync(tree.root, { recursive: true })
  return { names: [name], inside: [...inside, ...runtime.parts] }
}

export const makeDebs = (inside) => Promise.all(ARCHITECTURES.map((arch) => makeDeb(inside, arch, OUT)))

/** Makes the same package with another version number, in the same directory, to test an upgrade. Returns its path. */
export const relabelled = async (deb, version) => {
  const tree = `${deb}.tree`
  const labelled = join(dirname(deb), `x0x_${version}_${DEBIAN[process.arch]}.deb`)
  await ran('dpkg-deb', ['--raw-extract', deb, tree])
  const file = join(tree, 'DEBIAN/control')
  writeFileSync(file, readFileSync(file, 'utf8').replace(/^Version: .*$/m, `Version: ${version}`))
  await ran('dpkg-deb', ['--root-owner-group', '-Znone', '--build', tree, labelled])
  rmSync(tree, { recursive: true })
  return labelled
}
