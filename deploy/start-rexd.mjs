// Becomes dist/rexd.mjs. Runs rexd.cjs, which stands beside it, as the runtime compiled it when the package was built. Nothing
// is written here, and nothing is read that does not come with the package: see docs/adr/0069.
import { keyOf, mainOf } from './rexd-script.mjs'

const builtin = process.getBuiltinModule
const { readFileSync } = builtin('node:fs')
const { join } = builtin('node:path')
const { Script } = builtin('node:vm')

const here = import.meta.dirname
const file = join(here, 'rexd.cjs')
const text = readFileSync(file)

/**
 * What the runtime compiled of this very text; undefined where there is nothing, or it is damaged. The runtime itself would take
 * what it compiled of any text of this length, and run damaged bytes.
 */
const readCompiled = () => {
  try {
    const cache = readFileSync(join(here, 'rexd.cache'))
    const compiled = cache.subarray(cache.indexOf('\n') + 1)
    return cache.latin1Slice(0, cache.length - compiled.length) === keyOf(text, compiled) ? compiled : undefined
  } catch {
    return undefined
  }
}

const script = new Script(text.toString(), { filename: file, cachedData: readCompiled() })

// The young generation stays small: see docs/adr/0015. With a flag that it was not built with, the runtime compiles its own
// modules anew: those that every start needs are loaded before it is set.
const NEEDED = ['assert', 'child_process', 'crypto', 'fs/promises', 'module', 'net', 'perf_hooks', 'timers/promises', 'worker_threads']
for (const name of NEEDED) builtin(`node:${name}`)
builtin('node:v8').setFlagsFromString('--semi-space-growth-factor=1')

const main = mainOf(script, file, import.meta.url)
main(process.argv.slice(2), process.env).then(
  // Its input may be a terminal or a pipe that nobody closes.
  (status) => process.exit(status),
  (error) => {
    console.error(error)
    process.exitCode = 70
  },
)
