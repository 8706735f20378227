// How dist/rexd.cjs is run, and what dist/rexd.cache is of: for the build, which makes both, and for start-rexd.mjs, which uses both.
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
