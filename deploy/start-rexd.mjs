#!/usr/bin/env node
// Becomes dist/rexd.mjs. Runs rexd.cjs, which stands beside it, as the runtime compiled it when the package was built. Nothing
// is written here, and nothing is read that does not come with the package: see docs/adr/0069.
const builtin = process.getBuiltinModule
const { readFileSync } = builtin('node:fs')
const { join } = builtin('node:path')
const { Script } = builtin('node:vm')

const here = import.meta.dirname
const file = join(here, 'rexd.cjs')
const text = readFileSync(file, 'latin1')

/** What the cache has of this text for this runtime; undefined where it is of another. The runtime looks once more, and compiles what does not fit. */
const readCache = () => {
  const key = `${text.slice(0, text.indexOf('\n'))} ${process.version} ${process.platform}-${process.arch}\n`
  try {
    const cache = readFileSync(join(here, 'rexd.cache'))
    return cache.latin1Slice(0, key.length) === key ? cache.subarray(key.length) : undefined
  } catch {
    return undefined
  }
}

const script = new Script(text, { filename: file, cachedData: readCache() })

// The young generation stays small: see docs/adr/0015. With a flag that it was not built with, the runtime compiles its own
// modules anew: those that every start needs are loaded before it is set.
const NEEDED = ['assert', 'child_process', 'crypto', 'fs/promises', 'module', 'net', 'perf_hooks', 'timers/promises', 'worker_threads']
for (const name of NEEDED) builtin(`node:${name}`)
builtin('node:v8').setFlagsFromString('--semi-space-growth-factor=1')

const module = { exports: {} }
script.runInThisContext()(builtin('node:module').createRequire(file), module, file, here, import.meta.url)
module.exports.main(process.argv.slice(2), process.env).then(
  // Its input may be a terminal or a pipe that nobody closes.
  (status) => process.exit(status),
  (error) => {
    console.error(error)
    process.exitCode = 70
  },
)
