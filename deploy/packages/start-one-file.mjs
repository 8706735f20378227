// Becomes the program in the one-file `rexd`. The files that are next to rexd.mjs in a package are inside of it, as if in a directory with
// the file's path. The program starts itself by such a path to run a terminal or the server of `rexd exec`.
import { loadProgram } from '../compiled-script.mjs'

const builtin = process.getBuiltinModule
const { join } = builtin('node:path')
const { getAsset, getRawAsset } = builtin('node:sea')
const { pathToFileURL } = builtin('node:url')
const { Script } = builtin('node:vm')

const inside = (name) => join(process.execPath, name)
const bytesOf = (name) => Buffer.from(getRawAsset(name))

const [rexd, terminal] = ['rexd.mjs', 'terminal-host.cjs'].map(inside)
// Removes the path, so that the arguments are as with a separate runtime file.
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
