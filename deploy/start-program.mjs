// Becomes dist/rexd.mjs and dist/x0xd.mjs. Runs rexd.cjs or x0xd.cjs with the code that V8 compiled when the package was built. Node's own
// compile cache is not used, because a shared directory would let other users choose the code. Nothing is written here.
import { useOwnPipes } from '../src/base/own-pipes.ts'
import { cacheOf, loadProgram } from './compiled-script.mjs'

const builtin = process.getBuiltinModule
const { closeSync, openSync, readFileSync } = builtin('node:fs')
const { basename, join } = builtin('node:path')

const name = basename(import.meta.filename, '.mjs')
const beside = (ending) => join(import.meta.dirname, `${name}${ending}`)

const readCache = (program) => {
  try {
    const cache = openSync(beside('.cache'), 'r')
    try {
      return cacheOf(program, cache)
    } finally {
      closeSync(cache)
    }
  } catch {
    return Buffer.alloc(0)
  }
}

const load = () => {
  const file = beside('.cjs')
  const program = openSync(file, 'r')
  try {
    return loadProgram({ name, text: readFileSync(program), cache: readCache(program), file, url: import.meta.url })
  } finally {
    closeSync(program)
  }
}

/** The input of rexd may be a terminal or a pipe that stays open. x0xd ends when its event loop is empty. */
const end = name === 'rexd' ? process.exit : (status) => (process.exitCode = status)

const crash = (error) => {
  console.error(error)
  process.exitCode = 70
}

// Runs before any module of the runtime that opens standard error, such as node:assert.
useOwnPipes()
load()(process.argv.slice(2), process.env).then(end, crash)
