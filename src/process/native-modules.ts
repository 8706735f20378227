import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** Directories where every user can create a private one; no client's variable selects them. The first is in memory. */
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

/** True if the program, its runtime and its modules are one file. */
export const isOneFile = (): boolean => process.getBuiltinModule('node:sea').isSea()

const loaded = new Map<string, unknown>()

/**
 * Loads a native module of a single-file program; undefined otherwise. The system loads modules only from files, so it is written to one
 * for that moment.
 */
export const containedModule = (name: string): unknown => {
  if (!isOneFile()) return undefined
  if (loaded.has(name)) return loaded.get(name)
  const bytes = new Uint8Array(process.getBuiltinModule('node:sea').getRawAsset(name))
  const problems: unknown[] = []
  for (const place of PLACES)
    try {
      loaded.set(name, loadFrom(place, bytes))
      return loaded.get(name)
    } catch (error) {
      problems.push(error)
    }
  throw new AggregateError(problems, `programs cannot be run from any of ${PLACES.join(', ')}`)
}
