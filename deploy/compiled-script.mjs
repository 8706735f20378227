// How a program runs with the code that V8 compiled when the package was built, dist/NAME.cache. The build makes the files, and the loaders of
// the programs use them. This file asks for modules of the runtime by a call, because an import takes longer.
const builtin = (name) => process.getBuiltinModule(`node:${name}`)

/** The text around a bundle. V8 compiles a script as a whole, with the functions that a cache brings. */
export const FUNCTION = { head: '(function (require, module, __filename, __dirname, __url) {', tail: '})' }

/** Calls that function, which is in `file`, and returns the program's `main`. `url` becomes its `import.meta.url`. */
export const mainOf = (script, file, url) => {
  const module = { exports: {} }
  script.runInThisContext()(builtin('module').createRequire(file), module, file, builtin('path').dirname(file), url)
  return module.exports.main
}

const words = (text) => text.split(' ')

/** Modules of the runtime that each start of a program needs. */
const NEEDED = {
  rexd: words('assert child_process crypto fs/promises module net perf_hooks timers/promises worker_threads'),
  x0xd: words('assert child_process crypto fs/promises module net perf_hooks sqlite timers/promises url'),
  'x0xd-network': words(
    'async_hooks child_process crypto dgram diagnostics_channel dns dns/promises events fs/promises http module net os perf_hooks stream timers/promises url worker_threads',
  ),
}

/**
 * Keeps V8's young generation at its first size, 1 MiB. Buffers of 64 KiB die within a millisecond, and a small young generation reuses their
 * memory while it is cached: a third less processor time at full output. The flag must be set before a program allocates much.
 */
export const SMALL_YOUNG_GENERATION = '--semi-space-growth-factor=1'

const imported = NEEDED['x0xd-network'].map((name) => `import 'node:${name}'\n`).join('')

/**
 * The text around the function in dist/x0xd-network.mjs, which runs without the other files: a service manager may allow it to read that file
 * only.
 */
export const STANDALONE = {
  head: `import { createRequire as __createRequire } from 'node:module'
import { setFlagsFromString as __setFlags } from 'node:v8'
${imported}__setFlags('${SMALL_YOUNG_GENERATION}')
const __module = { exports: {} }
const __start = `,
  tail: `
__start(__createRequire(import.meta.url), __module, import.meta.filename, import.meta.dirname, import.meta.url)
process.exitCode = await __module.exports.main(process.argv.slice(2), process.env)`,
}

/** The function in the bytes of such a file. */
export const functionIn = (bytes) => bytes.subarray(bytes.indexOf(FUNCTION.head), bytes.lastIndexOf(STANDALONE.tail))

/** A program in dist/: its file, the bytes of its function, and the URL of the program. */
export const scriptOf = (name) => {
  const dist = (file) => builtin('path').join(import.meta.dirname, '..', 'dist', file)
  const isNetwork = name === 'x0xd-network'
  const file = dist(isNetwork ? 'x0xd-network.mjs' : `${name}.cjs`)
  const bytes = builtin('fs').readFileSync(file)
  return { file, bytes: isNetwork ? functionIn(bytes) : bytes, url: builtin('url').pathToFileURL(dist(`${name}.mjs`)).href }
}

/** The first line of the cache. `text` is the bytes of the function, and `compiled` those of the cache after this line. */
export const keyOf = (text, compiled) => {
  const [first, second] = [text, compiled].map((bytes) => builtin('crypto').hash('sha256', bytes))
  return `${first} ${second} ${process.version} ${process.platform}-${process.arch}\n`
}

/** The compiled code, or undefined if it is of another text. V8 would take code of any text of this length, and run damaged bytes. */
const compiledOf = (text, cache) => {
  const compiled = cache.subarray(cache.indexOf('\n') + 1)
  return cache.latin1Slice(0, cache.length - compiled.length) === keyOf(text, compiled) ? compiled : undefined
}

const WRITABLE_BY_OTHERS = 0o022

/** The bytes of an open cache, or none if more users may write it than the open program. */
export const cacheOf = (program, cache) => {
  const { fstatSync, readFileSync } = builtin('fs')
  const [its, own] = [program, cache].map((fd) => fstatSync(fd))
  const isAsPrivate = its.uid === own.uid && its.gid === own.gid && (own.mode & ~its.mode & WRITABLE_BY_OTHERS) === 0
  return isAsPrivate ? readFileSync(cache) : Buffer.alloc(0)
}

/** Returns the `main` of a program. `text` is the bytes of its function in `file`, and `cache` those of its cache, if any. */
export const loadProgram = ({ name, text, cache, file, url }) => {
  const { Script } = builtin('vm')
  const script = new Script(text.toString(), { filename: file, cachedData: compiledOf(text, cache) })
  // With a changed flag the runtime compiles its own modules again, so the needed ones are loaded first.
  for (const needed of NEEDED[name]) builtin(needed)
  builtin('v8').setFlagsFromString(SMALL_YOUNG_GENERATION)
  return mainOf(script, file, url)
}
