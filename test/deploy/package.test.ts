import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cp, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'

import { bundle, TARGETS } from '../../deploy/build.mjs'
import { tempDir } from '../support/temp-dir.ts'

const ROOT = join(import.meta.dirname, '..', '..')

interface LockEntry {
  version?: string
  resolved?: string
  integrity?: string
  optional?: boolean
  os?: string[]
  devDependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
}

const manifest = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
const lock: Record<string, LockEntry> = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages

/** True if the runtime would find the package, next to the other package or in a directory above it. */
const isInLock = (from: string, name: string): boolean => {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    if (`${at}${at && '/'}node_modules/${name}` in lock) return true
    if (at === '' || !at.includes('/node_modules/')) return `node_modules/${name}` in lock
  }
}

test('the lockfile matches package.json', () => {
  assert.deepEqual(lock['']?.devDependencies, manifest.devDependencies)
  assert.deepEqual(lock['']?.optionalDependencies, manifest.optionalDependencies)
})

test('the README installs the package of the programs and not the SDK package', async (t) => {
  const [, pattern = ''] = /npm install -g dist\/packages\/(\S+)/.exec(readFileSync(join(ROOT, 'README.md'), 'utf8')) ?? []
  const made = await tempDir(t)
  const { version } = manifest
  for (const name of [`x0x-${version}.tgz`, `x0x-client-${version}.tgz`]) await writeFile(join(made, name), '')
  const { stdout } = await promisify(execFile)('sh', ['-c', `echo ${pattern}`], { cwd: made })
  assert.equal(stdout, `x0x-${version}.tgz\n`)
})

test('the lockfile has versions and hashes, but no registry', () => {
  for (const [path, entry] of Object.entries(lock)) {
    if (path === '') continue
    assert.ok(entry.version, path)
    assert.equal(entry.resolved, undefined, path)
    assert.ok(entry.integrity?.startsWith('sha512-') || (entry.optional && entry.os), `${path} has no hash`)
  }
})

test('the lockfile has the optional packages of every platform, as npm ci requires', () => {
  const missing = Object.entries(lock).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies)
      .filter((name) => !isInLock(path, name))
      .map((name) => `${path}: ${name}`),
  )
  assert.deepEqual(missing, [])
})

test('the x0x package depends only on its runtime and two native modules, all of them optional', () => {
  assert.equal(manifest.dependencies, undefined)
  for (const name of Object.keys(manifest.optionalDependencies))
    assert.match(name, /^(node-(linux|darwin)-(x64|arm64)|@lydell\/node-pty|@koromix\/koffi-linux-(x64|arm64))$/)
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) assert.equal(manifest.scripts[script], undefined)
})

test('the x0x package contains the built files of dist, but no temporary files of a killed build', async (t) => {
  const cwd = await tempDir(t)
  await cp(join(ROOT, 'package.json'), join(cwd, 'package.json'))
  await mkdir(join(cwd, 'dist'))
  for (const name of ['rexd.cjs', 'rexd.cache', 'rexd.cache.123.tmp', 'x0x.cjs.123.tmp']) await writeFile(join(cwd, 'dist', name), '')
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd })
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }]
  assert.deepEqual(files.map(({ path }) => path).sort(), ['dist/rexd.cache', 'dist/rexd.cjs', 'package.json'])
})

/** Returns the packages of node_modules in a bundle. */
const packagesIn = async (target: (typeof TARGETS)[keyof typeof TARGETS]): Promise<Set<string>> => {
  const { metafile } = await bundle(target)
  const names = Object.keys(metafile.inputs).map((path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1])
  return new Set(names.filter((name) => name !== undefined))
}

test('the bundle for a plain exec has only two small packages and no code of other commands', async () => {
  const { metafile, text } = await bundle(TARGETS.x0x)
  assert.deepEqual([...(await packagesIn(TARGETS.x0x))].sort(), ['@noble/hashes', 'uuid'])
  const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  // Modules that load slowly are missing, such as node:http. Modules that only stdin needs are loaded later.
  assert.deepEqual(
    [...new Set(outside)].sort(),
    ['crypto', 'fs', 'fs/promises', 'net', 'os', 'path', 'stream', 'tty', 'util']
      .map((name) => `node:${name}`)
      .concat('./x0x-other-commands.cjs')
      .sort(),
  )
  assert.ok(text.length < 84 * 1024, `${text.length} bytes to read before anything is asked`)
  // A program that starts x0x gives it a pipe as standard input, so the check of that pipe must not load the other commands.
  assert.ok('src/cli/unsent-stdin.ts' in metafile.inputs)
  // Code for approvals is only in the bundle of the other commands.
  assert.deepEqual(
    Object.keys(metafile.inputs).filter((file) => /desk|approval|question|exec-mode|mode-command/.test(file)),
    [],
  )
})

test("the console client's bundle has only the code that runs a command, and other code has separate bundles", async () => {
  const { metafile, text } = await bundle(TARGETS.rexec)
  const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  // Modules that load slowly are missing, such as node:fs/promises.
  assert.deepEqual(
    [...new Set(outside)].sort(),
    ['fs', 'net', 'os', 'path', 'util']
      .map((name) => `node:${name}`)
      .concat('./rexec-maintenance-commands.cjs')
      .sort(),
  )
  assert.deepEqual([...(await packagesIn(TARGETS.rexec))], [])
  assert.equal((await packagesIn(TARGETS['rexec-maintenance-commands'])).has('@xterm/headless'), false)
  assert.ok((await packagesIn(TARGETS['rexec-colours'])).has('@xterm/headless'))
  assert.ok(text.length < 58 * 1024, `${text.length} bytes to read before a command is sent`)
})

test('the command line bundle contains neither the mesh nor the local interfaces nor the logger', async () => {
  const packages = [...(await packagesIn(TARGETS['x0x-other-commands']))]
  assert.deepEqual(
    packages.filter((name) => /libp2p|fastify|^zod$|^pino$|^ajv/.test(name)),
    [],
  )
  assert.ok(packages.includes('smol-toml'))
})

test('the executor bundle has no network parsers, and the network bundle has no command line and no schema compiler', async () => {
  const network = /libp2p|chainsafe|multiformats|fastify|^zod$|^ajv/
  const executor = [...(await packagesIn(TARGETS['x0xd-script']))]
  assert.deepEqual(
    executor.filter((name) => network.test(name)),
    [],
  )
  const names = [...(await packagesIn(TARGETS['x0xd-network']))]
  assert.ok(names.some((name) => network.test(name)))
  const { metafile } = await bundle(TARGETS['x0xd-network'])
  assert.deepEqual(
    names.filter((name) => /^ajv$|^yaml$|-compiler$|^light-my-request$/.test(name)),
    [],
  )
  assert.deepEqual(
    Object.keys(metafile.inputs).filter((path) => /^src\/cli\/(?!exit|output)/.test(path)),
    [],
  )
  const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  assert.deepEqual(
    outside.filter((path) => /^(node:)?(https|http2|tls)$/.test(path)),
    [],
    'modules of several megabytes that it never uses',
  )
})

for (const name of ['x0xd-script', 'x0xd-network'] as const)
  test(`${name} is one bundle without external packages and without native code`, async () => {
    const { metafile } = await bundle(TARGETS[name])
    const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
    assert.deepEqual(
      outside.filter((path) => !path.startsWith('node:') && !process.getBuiltinModule(path)),
      [],
    )
    assert.ok(!Object.keys(metafile.inputs).some((path) => path.endsWith('.node') || path.includes('cbor-extract')))
  })

test('the copyright file of the Debian package names third-party files', () => {
  const text = readFileSync(join(ROOT, 'deploy/packages/debian/copyright'), 'utf8')
  for (const [files, license] of [
    ['*', 'Apache-2.0'],
    ['usr/lib/x0x/dist/*', 'Apache-2.0 and bundled'],
    ['usr/lib/x0x/bin/node', 'Expat and others'],
    ['usr/lib/x0x/node_modules/@lydell/*', 'Expat'],
  ] as const) {
    const paragraph = text.split('\n\n').find((one) => one.startsWith(`Files: ${files}\n`)) ?? assert.fail(files)
    assert.match(paragraph, /^Copyright: \S/m, files)
    assert.ok(paragraph.includes(`\nLicense: ${license}`), paragraph)
  }
})
