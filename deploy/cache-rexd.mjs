// Run by the build, under the runtime that is to run rexd: uses the built rexd as its callers do, and keeps how the runtime compiled it.
import { chmod, mkdtemp, readFile, realpath, rename, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { pathToFileURL } from 'node:url'
import { Script } from 'node:vm'

import { packageRoot } from './runtime.mjs'

const dist = join(packageRoot, 'dist')
const file = join(dist, 'rexd.cjs')

/** The client is our own build of it: it speaks to the rexd that runs in this process. */
const use = async (main, config) => {
  const { connect, streams } = await import(pathToFileURL(join(dist, 'client.mjs')).href)
  const [input, output] = [new PassThrough(), new PassThrough()]
  for (const [name, value] of Object.entries({ stdin: input, stdout: output })) Object.defineProperty(process, name, { value })
  const served = main(['--stdio', '--config', config], process.env)
  const client = await connect({ transport: streams(output, input) })
  const session = await Promise.race([client.open({ clientName: 'build' }), served])
  if (typeof session === 'number') throw new Error(`rexd ended with ${session}`)
  await session.run(['/bin/sh', '-c', 'cat'], { stdin: 'text' })
  await session.files.write('file', Buffer.from('text'))
  await session.files.read('file')
  await client.close()
  const statuses = [await served, await main(['exec', '--config', config, '--', '/bin/true'], process.env)]
  if (statuses.some((status) => status !== 0)) throw new Error(`rexd ended with ${statuses.join(', ')}`)
}

const keep = async (directory) => {
  const config = join(directory, 'rexd.toml')
  const [root, journal] = [directory, join(directory, 'audit.log')].map((path) => JSON.stringify(path))
  const settings = `[[security.allowed_roots]]\npath = ${root}\n[security]\nallow_write = true\n[audit]\npath = ${journal}\n`
  await writeFile(config, settings, { mode: 0o600 })
  const text = await readFile(file, 'latin1')
  const script = new Script(text, { filename: file })
  const module = { exports: {} }
  const url = pathToFileURL(join(dist, 'rexd.mjs')).href
  script.runInThisContext()(createRequire(file), module, file, dist, url)
  await use(module.exports.main, config)
  const key = `${text.slice(0, text.indexOf('\n'))} ${process.version} ${process.platform}-${process.arch}\n`
  const temporary = join(dist, `rexd.cache.${process.pid}.tmp`)
  await writeFile(temporary, Buffer.concat([Buffer.from(key, 'latin1'), script.createCachedData()]))
  await chmod(temporary, 0o644)
  await rename(temporary, join(dist, 'rexd.cache'))
}

const directory = await realpath(await mkdtemp(join(tmpdir(), 'x0x-build-')))
// What nobody catches here would be for rexd to catch.
const status = await keep(directory).then(
  () => 0,
  (error) => {
    console.error(error.message)
    return 1
  },
)
await rm(directory, { recursive: true, force: true })
process.exit(status)
