import assert from 'node:assert/strict'
import { spawn, type ChildProcessByStdio } from 'node:child_process'
import { once } from 'node:events'
import { realpathSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { afterEach, beforeEach, test } from 'node:test'
import { pathToFileURL } from 'node:url'

import { PINNED } from '../../deploy/runtime.mjs'

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy')

let dir: string
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'x0x-launcher-'))
})
afterEach(() => rm(dir, { recursive: true, force: true }))

type Running = ChildProcessByStdio<null, Readable, Readable>

const start = (args: readonly string[]): Running => spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] })

const finish = async (child: Running): Promise<{ code: number | null; stdout: string; stderr: string }> => {
  const text = { stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (part: string) => (text.stdout += part))
  child.stderr.setEncoding('utf8').on('data', (part: string) => (text.stderr += part))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, ...text }
}

/** Makes an installed package whose bundles print their arguments. */
const installed = async (bundles: Record<string, string>): Promise<string> => {
  const root = join(dir, 'x0x')
  await cp(join(DEPLOY, 'bin'), join(root, 'deploy', 'bin'), { recursive: true })
  await cp(join(DEPLOY, 'runtime.mjs'), join(root, 'deploy', 'runtime.mjs'))
  await mkdir(join(root, 'dist'))
  for (const [name, text] of Object.entries(bundles)) await writeFile(join(root, 'dist', name), text)
  return root
}

const runInstead = (script: string): Running => {
  const module = pathToFileURL(join(DEPLOY, 'runtime.mjs')).href
  const code = `import { runInstead } from '${module}'\nprocess.exit(await runInstead(process.execPath, ['-e', ${JSON.stringify(script)}]))`
  return start(['--input-type=module', '-e', code])
}

test('the command line runs its bundle in the same process and returns its status', async () => {
  const root = await installed({ 'x0x.cjs': 'console.log(process.ppid, ...process.argv.slice(2)); process.exitCode = 7' })
  const result = await finish(start([join(root, 'deploy', 'bin', 'x0x.cjs'), 'exec', 'bob']))
  assert.deepEqual(result, { code: 7, stdout: `${process.pid} exec bob\n`, stderr: '' })
})

test('the daemon runs its bundle with a new enough runtime, and passes on arguments and status', async () => {
  const root = await installed({ 'x0xd.mjs': 'console.log(process.version, ...process.argv.slice(2)); process.exitCode = 3' })
  const result = await finish(start([join(root, 'deploy', 'bin', 'x0xd.mjs'), '--name', 'lab']))
  assert.equal(result.code, 3)
  const [, major, minor] = /^v(\d+)\.(\d+)\.\d+ --name lab\n$/.exec(result.stdout) ?? []
  assert.ok(Number(major) > 24 || (Number(major) === 24 && Number(minor) >= 7), result.stdout)
})

test('the minimum release of another runtime is the one that package.json pins', async () => {
  const { optionalDependencies } = JSON.parse(await readFile(join(DEPLOY, '..', 'package.json'), 'utf8')) as {
    optionalDependencies: Record<string, string>
  }
  const pinned = Object.entries(optionalDependencies)
    .filter(([name]) => name.startsWith('node-'))
    .map(([, version]) => version.split('.').slice(0, 2).map(Number))
  assert.ok(pinned.length > 0)
  for (const version of pinned) assert.deepEqual(version, PINNED)
})

test('a runtime that is older than the pinned one does not replace it', async () => {
  const module = pathToFileURL(join(DEPLOY, 'runtime.mjs')).href
  const found = async (version: string): Promise<string> => {
    const code = `Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '${version}' } })
      console.log((await import('${module}')).findRuntime())`
    return (await finish(start(['--input-type=module', '--eval', code]))).stdout.trim()
  }
  const [older, same] = [await found(`${PINNED[0]}.${PINNED[1]! - 1}.0`), await found(`${PINNED[0]}.${PINNED[1]}.0`)]
  assert.match(older, /node_modules\/node-/)
  assert.equal(same, realpathSync(process.execPath))
})

test('a runtime that can replace the pinned one runs the bundle in the same process', async () => {
  const root = await installed({ 'rexd.mjs': 'console.log(process.pid, process.ppid, process.execPath)' })
  const pinned = join(root, 'node_modules', `node-${process.platform}-${process.arch}`)
  await mkdir(join(pinned, 'bin'), { recursive: true })
  await writeFile(join(pinned, 'package.json'), '{}')
  await writeFile(join(pinned, 'bin', 'node'), '#!/bin/sh\nexit 9\n', { mode: 0o755 })
  const child = start([join(root, 'deploy', 'bin', 'rexd.mjs')])
  assert.deepEqual(await finish(child), { code: 0, stdout: `${child.pid} ${process.pid} ${process.execPath}\n`, stderr: '' })
})

test('only a command that takes the lock of a data directory starts the runtime of the package', async () => {
  const root = await installed({ 'x0x.cjs': "console.log('here', ...process.argv.slice(2))" })
  const pinned = join(root, 'node_modules', `node-${process.platform}-${process.arch}`)
  await mkdir(join(pinned, 'bin'), { recursive: true })
  await writeFile(join(pinned, 'package.json'), '{}')
  await writeFile(join(pinned, 'bin', 'node'), '#!/bin/sh\nshift\necho package "$@"\n', { mode: 0o755 })
  const older = join(dir, 'older.cjs')
  await writeFile(older, "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '20.1.0' } })\n")
  for (const [runtime, ...words] of [
    ['package', '--data-dir', 'd', 'keys', 'rotate', '--yes'],
    ['here', 'keys', 'rotate-token'],
  ]) {
    const result = await finish(start(['-r', older, join(root, 'deploy', 'bin', 'x0x.cjs'), ...words]))
    assert.deepEqual(result, { code: 0, stdout: `${[runtime, ...words].join(' ')}\n`, stderr: '' })
  }
})

for (const name of ['x0x.cjs', 'x0xd.mjs', 'rexd.mjs']) {
  test(`${name} reports that its package has no bundle`, async () => {
    const root = await installed({})
    const result = await finish(start([join(root, 'deploy', 'bin', name)]))
    assert.equal(result.code, 2)
    assert.match(result.stderr, /packed without its dist.*\n.*npm run build/)
  })
}

test('runInstead returns the status of the program', async () => {
  assert.equal((await finish(runInstead('process.exit(42)'))).code, 42)
})

test('runInstead returns 128 plus the signal if a signal ends the program', async () => {
  assert.equal((await finish(runInstead("process.kill(process.pid, 'SIGKILL')"))).code, 128 + constants.signals.SIGKILL)
})

for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) {
  test(`runInstead forwards ${signal} to the program`, async () => {
    const child = runInstead(`process.on('${signal}', () => process.exit(9)); setInterval(() => {}, 1000); console.log('ready')`)
    await once(child.stdout, 'data')
    child.kill(signal)
    assert.equal((await finish(child)).code, 9)
  })
}

test('a signal that arrives while runInstead starts the program also ends it', async () => {
  const code = `import cp from 'node:child_process'
    import { syncBuiltinESMExports } from 'node:module'
    const { spawn } = cp
    cp.spawn = (...args) => {
      const child = spawn(...args)
      process.kill(process.pid, 'SIGTERM')
      return child
    }
    syncBuiltinESMExports()
    const { runInstead } = await import('${pathToFileURL(join(DEPLOY, 'runtime.mjs')).href}')
    process.exit(await runInstead(process.execPath, ['-e', 'setTimeout(() => {}, 20_000)']))`
  assert.equal((await finish(start(['--input-type=module', '-e', code]))).code, 128 + constants.signals.SIGTERM)
})
