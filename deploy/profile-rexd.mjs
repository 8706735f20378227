// Run by `npm run profile`: uses the built rexd as its clients do, and writes rexd.txt, the list of its functions that ran, into the given
// directory.
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PassThrough } from 'node:stream'
import { pathToFileURL } from 'node:url'
import { Script } from 'node:vm'

import { mainOf, scriptOf } from './compiled-script.mjs'
import { profileFunctions } from './profiled-functions.mjs'
import { packageRoot } from './runtime.mjs'

const dist = (name) => join(packageRoot, 'dist', name)

/** A build of the client for this script. It speaks to the rexd that runs in this process. */
const use = async (main, config) => {
  const { connect, streams } = await import(pathToFileURL(dist('client.mjs')).href)
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
  const { file, bytes, url } = scriptOf('rexd')
  const writeList = await profileFunctions('rexd', directory)
  await use(mainOf(new Script(bytes.toString(), { filename: file }), file, url), config)
  writeList()
}

// An unhandled rejection of this script must not reach the handlers of rexd.
const status = await keep(process.argv[2]).then(
  () => 0,
  (error) => {
    console.error(error.message)
    return 1
  },
)
process.exit(status)
