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

/** As the runtime looks it up: beside the package, then in each directory above. */
const isInLock = (from: string, name: string): boolean => {
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    if (`${at}${at && '/'}node_modules/${name}` in lock) return true
    if (at === '' || !at.includes('/node_modules/')) return `node_modules/${name}` in lock
  }
}

test('the lockfile is the one of this package.json', () => {
  assert.deepEqual(lock['']?.devDependencies, manifest.devDependencies)
  assert.deepEqual(lock['']?.optionalDependencies, manifest.optionalDependencies)
})

test('the README installs the programs, and not the client library beside them', async (t) => {
  const [, pattern = ''] = /npm install -g dist\/packages\/(\S+)/.exec(readFileSync(join(ROOT, 'README.md'), 'utf8')) ?? []
  const made = await tempDir(t)
  const { version } = manifest
  for (const name of [`x0x-${version}.tgz`, `x0x-client-${version}.tgz`]) await writeFile(join(made, name), '')
  const { stdout } = await promisify(execFile)('sh', ['-c', `echo ${pattern}`], { cwd: made })
  assert.equal(stdout, `x0x-${version}.tgz\n`)
})

test('the lockfile names versions and hashes, and no registry', () => {
  for (const [path, entry] of Object.entries(lock)) {
    if (path === '') continue
    assert.ok(entry.version, path)
    assert.equal(entry.resolved, undefined, path)
    assert.ok(entry.integrity?.startsWith('sha512-') || (entry.optional && entry.os), `${path} has no hash`)
  }
})

test('the lockfile holds the optional packages of every platform, as npm ci demands', () => {
  const missing = Object.entries(lock).flatMap(([path, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies)
      .filter((name) => !isInLock(path, name))
      .map((name) => `${path}: ${name}`),
  )
  assert.deepEqual(missing, [])
})

test('a packed x0x brings along nothing but its runtime and two native modules, where they can be had', () => {
  assert.equal(manifest.dependencies, undefined)
  for (const name of Object.keys(manifest.optionalDependencies))
    assert.match(name, /^(node-(linux|darwin)-(x64|arm64)|@lydell\/node-pty|@koromix\/koffi-linux-(x64|arm64))$/)
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) assert.equal(manifest.scripts[script], undefined)
})

test('what is packed of dist is what was built, and nothing that a killed build left half-written', async (t) => {
  const cwd = await tempDir(t)
  await cp(join(ROOT, 'package.json'), join(cwd, 'package.json'))
  await mkdir(join(cwd, 'dist'))
  for (const name of ['rexd.cjs', 'rexd.cache', 'rexd.cache.123.tmp', 'x0x.cjs.123.tmp']) await writeFile(join(cwd, 'dist', name), '')
  const { stdout } = await promisify(execFile)('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd })
  const [{ files }] = JSON.parse(stdout) as [{ files: { path: string }[] }]
  assert.deepEqual(files.map(({ path }) => path).sort(), ['dist/rexd.cache', 'dist/rexd.cjs', 'package.json'])
})

/** Packages of node_modules that went into a bundle. */
const packagesIn = async (target: (typeof TARGETS)[keyof typeof TARGETS]): Promise<Set<string>> => {
  const { metafile } = await bundle(target)
  const names = Object.keys(metafile.inputs).map((path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1])
  return new Set(names.filter((name) => name !== undefined))
}

test('a plain exec is bundled with next to nothing, and leaves every other command apart', async () => {
  const { metafile, text } = await bundle(TARGETS.x0x)
  assert.deepEqual([...(await packagesIn(TARGETS.x0x))].sort(), ['@noble/hashes', 'uuid'])
  const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  // What takes long to load is not here: node:http, and what only a command with stdin needs is loaded then.
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
  // Nor what asks a human: that is for the commands that do.
  assert.deepEqual(
    Object.keys(metafile.inputs).filter((file) => /desk|approval|question|exec-mode|mode-command/.test(file)),
    [],
  )
})

test("a console's client is bundled with what runs a command; all else, and the terminal that shows colours, stand apart", async () => {
  const { metafile, text } = await bundle(TARGETS.rexec)
  const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  // What takes long to load is not here: node:fs/promises, which no command needs.
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

test('the command line is bundled without the mesh, the doors and the log', async () => {
  const packages = [...(await packagesIn(TARGETS['x0x-other-commands']))]
  assert.deepEqual(
    packages.filter((name) => /libp2p|fastify|^zod$|^pino$|^ajv/.test(name)),
    [],
  )
  assert.ok(packages.includes('smol-toml'))
})

test('the executor is bundled without what parses the network, and the network half without the command line and what fastify would compile schemas with', async () => {
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
  test(`${name} is bundled whole, without native code`, async () => {
    const { metafile } = await bundle(TARGETS[name])
    const outside = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
    assert.deepEqual(
      outside.filter((path) => !path.startsWith('node:') && !process.getBuiltinModule(path)),
      [],
    )
    assert.ok(!Object.keys(metafile.inputs).some((path) => path.endsWith('.node') || path.includes('cbor-extract')))
  })

test('the copyright file of the Debian package names what is not ours', () => {
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
