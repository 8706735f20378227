import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Where everybody may make a directory of his own that nobody else may rename: no variable of a caller chooses it. In memory where that can be. */
const PLACES = ['/dev/shm', '/tmp', '/var/tmp']

const loadFrom = (place: string, bytes: Uint8Array): unknown => {
  const directory = mkdtempSync(join(place, 'x0x-'))
  try {
    const file = join(directory, 'module.node')
    writeFileSync(file, bytes, { flag: 'wx', mode: 0o600 })
    const module = { exports: {} as unknown }
    process.dlopen(module, file)
    return module.exports
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
}

/** True where this program, its runtime and all that it loads are one file. */
export const isOneFile = (): boolean => process.getBuiltinModule('node:sea').isSea()

let loaded: { readonly exports: unknown } | null = null

/** A native module inside of the one file; undefined where there are several. The system loads one from a file alone: it is written for that moment. */
export const heldModule = (name: string): unknown => {
  if (!isOneFile()) return undefined
  if (loaded !== null) return loaded.exports
  const bytes = new Uint8Array(process.getBuiltinModule('node:sea').getRawAsset(name))
  const problems: unknown[] = []
  for (const place of PLACES)
    try {
      loaded = { exports: loadFrom(place, bytes) }
      return loaded.exports
    } catch (error) {
      problems.push(error)
    }
  throw new AggregateError(problems, `none of ${PLACES.join(', ')} is one where programs may be run from`)
}
