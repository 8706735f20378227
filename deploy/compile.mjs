// Run by the build, under the runtime that is to run the program: writes NAME.cache, functions of it as V8 compiles them, into a directory.
// NAME.json in the directory has their places. It runs none of the code, and with --predictable the same bundle gives the same bytes. It does
// nothing else, because what was in the memory before can become the value of an unused byte.
import { readFileSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector'
import { join } from 'node:path'
import { Script } from 'node:vm'

import { keyOf, scriptOf } from './compiled-script.mjs'

const [name, directory] = process.argv.slice(2)

const { bytes } = scriptOf(name)
// The code keeps a name, which must not depend on where the sources are. The loader gives it another.
const script = new Script(bytes.toString(), { filename: name })
// It defines the function and does not call it. The debugger knows only scripts of a context.
script.runInThisContext()

const session = new Session()
session.connect()
let scriptId
session.on('Debugger.scriptParsed', ({ params }) => (scriptId = params.url.endsWith(name) ? params.scriptId : scriptId))
const post = (method, parameters) =>
  session.post(method, parameters, (error) => {
    if (error) throw new Error(`${method}: ${JSON.stringify(error)}`)
  })

post('Debugger.enable')
// Looking for places to break compiles the function around them, and those around it.
for (const [lineNumber, columnNumber] of JSON.parse(readFileSync(join(directory, `${name}.json`), 'utf8'))) {
  const start = { scriptId, lineNumber, columnNumber }
  post('Debugger.getPossibleBreakpoints', { start, end: { ...start, columnNumber: columnNumber + 1 } })
}
post('Debugger.disable')
session.disconnect()

const compiled = script.createCachedData()
writeFileSync(join(directory, `${name}.cache`), Buffer.concat([Buffer.from(keyOf(bytes, compiled)), compiled]))
// An inspector session may hold the process.
process.exit(0)
