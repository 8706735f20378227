import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, readdir, rename, symlink, writeFile } from 'node:fs/promises'
import { builtinModules } from 'node:module'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import { bundle, TARGETS } from '../../deploy/build.mjs'
import { tempDir } from '../support/temp-dir.ts'
import { place } from './real-server.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))
const TSC = join(ROOT, 'node_modules/typescript/bin/tsc')

const run = promisify(execFile)

test('the bundle contains only the client, the protocol and the WebSocket library, and imports only built-in modules', async () => {
  const { metafile } = await bundle(TARGETS.client)
  const foreign = Object.keys(metafile.inputs).filter((path) => !/^(src\/(sdk|protocol)\/|node_modules\/ws\/|start\.js$)/.test(path))
  assert.deepEqual(foreign, [])
  const imported = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path))
  // The WebSocket library uses these optional packages only if they are installed.
  const optional = ['bufferutil', 'utf-8-validate']
  assert.deepEqual(
    imported.filter((path) => !builtinModules.includes(path.replace(/^node:/, '')) && !optional.includes(path)),
    [],
  )
})

/** A user's directory that contains only the packed package. */
const installed = async (t: TestContext): Promise<string> => {
  const directory = await tempDir(t)
  const { stdout } = await run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', directory], { cwd: ROOT })
  const [{ filename }] = JSON.parse(stdout) as [{ filename: string }]
  await run('tar', ['xzf', filename], { cwd: directory })
  await mkdir(join(directory, 'node_modules/@types'), { recursive: true })
  await rename(join(directory, 'package'), join(directory, 'node_modules/x0x'))
  for (const name of ['@types/node', 'undici-types']) await symlink(join(ROOT, 'node_modules', name), join(directory, 'node_modules', name))
  await writeFile(join(directory, 'package.json'), '{"type":"module"}')
  return directory
}

const PROGRAM = `
import { connect, RexdError, stdio, webSocket, type RexdSession, type TransportFactory } from 'x0x/client'

const first = async (session: RexdSession): Promise<string> => {
  const process = await session.exec(['echo', 'packed'])
  for await (const { stream, data } of process) if (stream === 'stdout') return Buffer.from(data).toString()
  return ''
}
const over: TransportFactory = stdio({ command: process.argv.slice(2) })
await using client = await connect({ transport: over })
const session = await client.open({ clientName: 'packed' })
console.log((await first(session)).trim(), webSocket({ url: 'unix:/run/rexd.sock', token: 'x' }).name)
await session.files.readText('nothing').catch((error: unknown) => console.log(error instanceof RexdError && error.name))
`

test('a program can import x0x/client with its types from the package, and the client works', async (t) => {
  const directory = await installed(t)
  await writeFile(join(directory, 'program.ts'), PROGRAM)
  const options = ['--strict', '--target', 'es2023', '--lib', 'es2023,esnext.disposable', '--module', 'nodenext', '--types', 'node']
  // This also checks the package's declarations.
  const checked = await run(process.execPath, [TSC, ...options, '--exactOptionalPropertyTypes', 'program.ts'], { cwd: directory }).catch(
    (error: unknown) => error as { stdout: string },
  )
  assert.equal(checked.stdout, '')
  await writeFile(join(directory, 'wrong.ts'), PROGRAM.replace("clientName: 'packed'", "client: 'packed'"))
  const wrong = run(process.execPath, [TSC, ...options, '--noEmit', 'wrong.ts'], { cwd: directory })
  await assert.rejects(wrong, (error: unknown) =>
    /'client' does not exist in type 'OpenOptions'/.test((error as { stdout: string }).stdout),
  )
  const { command } = await place(t)
  const { stdout } = await run(process.execPath, ['program.js', ...command], { cwd: directory })
  assert.equal(stdout, 'packed unix:/run/rexd.sock\nfile_not_found\n')
  const inside = await readdir(join(directory, 'node_modules/x0x'))
  assert.ok(!inside.includes('src') && !inside.includes('test'))
  const daemon = run(process.execPath, ['-e', "import('x0x/dist/x0xd.mjs')"], { cwd: directory })
  await assert.rejects(daemon, /ERR_PACKAGE_PATH_NOT_EXPORTED/)
})
