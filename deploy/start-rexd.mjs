// Becomes dist/rexd.mjs. Runs rexd.cjs, which stands beside it, as the runtime compiled it when the package was built. Nothing
// is written here, and nothing is read that does not come with the package: see docs/adr/0069.
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
