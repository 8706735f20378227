// Becomes the program inside of the one file `rexd`. What stands beside rexd.mjs in a package is inside of it, under names below
// the file's own path: by those it starts itself, for a terminal, and as the server of `rexd exec`.
import { loadProgram } from '../compiled-script.mjs'

const builtin = process.getBuiltinModule
const { join } = builtin('node:path')
const { getAsset, getRawAsset } = builtin('node:sea')
const { pathToFileURL } = builtin('node:url')
const { Script } = builtin('node:vm')

const inside = (name) => join(process.execPath, name)
const bytesOf = (name) => Buffer.from(getRawAsset(name))

const [rexd, terminal] = ['rexd.mjs', 'terminal-host.cjs'].map(inside)
// As where the runtime is a file of its own: it, its program, the words for that.
if ([rexd, terminal].includes(process.argv[2])) process.argv.splice(1, 1)

if (process.argv[1] === terminal) {
  const head = '(function (require, __filename) {'
  const script = new Script(`${head}${getAsset('terminal-host.cjs', 'utf8')}\n})`, { filename: terminal })
  script.runInThisContext()(builtin('node:module').createRequire(terminal), terminal)
} else {
  const [text, cache] = ['rexd.cjs', 'rexd.cache'].map(bytesOf)
  loadProgram({ name: 'rexd', text, cache, file: inside('rexd.cjs'), url: pathToFileURL(rexd).href })(
    process.argv.slice(2),
    process.env,
  ).then(
    (status) => process.exit(status),
    (error) => {
      console.error(error)
      process.exitCode = 70
    },
  )
}
