// Becomes dist/rexd.mjs. Runs rexd.cjs with the code that V8 compiled when the package was built. Node's own compile cache is not used,
// because a shared directory would let other users choose the code. Nothing is written here.
import { useOwnPipes } from '../src/base/own-pipes.ts'
import { runRexd } from './rexd-script.mjs'

const builtin = process.getBuiltinModule
const { readFileSync } = builtin('node:fs')
const { join } = builtin('node:path')

const here = import.meta.dirname
const file = join(here, 'rexd.cjs')

const readCache = () => {
  try {
    return readFileSync(join(here, 'rexd.cache'))
  } catch {
    return Buffer.alloc(0)
  }
}

// Before a module of the runtime that opens standard error is loaded, such as node:assert.
useOwnPipes()
runRexd({ text: readFileSync(file), cache: readCache(), file, url: import.meta.url })
