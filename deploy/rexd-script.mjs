// How dist/rexd.cjs is run, and what dist/rexd.cache is of: for the build, which makes both, and for what starts rexd, which uses both.
// What stands here asks for a module of the runtime by a call, for an import takes longer.
const builtin = (name) => process.getBuiltinModule(`node:${name}`)

/** What stands around the bundle: a script is compiled as a whole, and its functions with it. */
export const FUNCTION = { head: '(function (require, module, __filename, __dirname, __url) {', tail: '})' }

/** Runs that function, which stands in `file`; answers the `main` of rexd. `url`: what its `import.meta.url` is. */
export const mainOf = (script, file, url) => {
  const module = { exports: {} }
  script.runInThisContext()(builtin('module').createRequire(file), module, file, builtin('path').dirname(file), url)
  return module.exports.main
}

/** The first line of the cache. `text`: the bytes of rexd.cjs. `compiled`: those of the cache behind this line. */
export const keyOf = (text, compiled) => {
  const [first, second] = [text, compiled].map((bytes) => builtin('crypto').hash('sha256', bytes))
  return `${first} ${second} ${process.version} ${process.platform}-${process.arch}\n`
}

/** What the runtime compiled of this very text; undefined where it is of another. The runtime itself would take what it compiled of any text of this length, and run damaged bytes. */
const compiledOf = (text, cache) => {
  const compiled = cache.subarray(cache.indexOf('\n') + 1)
  return cache.latin1Slice(0, cache.length - compiled.length) === keyOf(text, compiled) ? compiled : undefined
}

/** Modules of the runtime that every start needs. */
const NEEDED = ['assert', 'child_process', 'crypto', 'fs/promises', 'module', 'net', 'perf_hooks', 'timers/promises', 'worker_threads']

/** Runs rexd. `text`: the bytes of rexd.cjs, which stands in `file`. `cache`: those of rexd.cache, empty where there is none. */
export const runRexd = ({ text, cache, file, url }) => {
  const { Script } = builtin('vm')
  const script = new Script(text.toString(), { filename: file, cachedData: compiledOf(text, cache) })
  // Keeps the young generation small, see DAEMON_PRELUDE in build.mjs. With a changed flag the runtime compiles its own modules again, so
  // the needed ones are loaded first.
  for (const name of NEEDED) builtin(name)
  builtin('v8').setFlagsFromString('--semi-space-growth-factor=1')
  mainOf(
    script,
    file,
    url,
  )(process.argv.slice(2), process.env).then(
    // Its input may be a terminal or a pipe that nobody closes.
    (status) => process.exit(status),
    (error) => {
      console.error(error)
      process.exitCode = 70
    },
  )
}
