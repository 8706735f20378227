import { accessSync, constants, statSync } from 'node:fs'
import { basename, posix } from 'node:path'
import { attempt } from '../../base/errors.ts'
import type { ExecutableLookup } from '../executable.ts'
import type { Executable, SandboxGrant } from '../permit.ts'
import { seenIn } from './seen-from.ts'

const programAt = (grant: SandboxGrant, path: string): Executable | null =>
  attempt(() => {
    const place = seenIn(grant, path)
    const info = statSync(place, { bigint: true })
    if (!info.isFile()) return null
    accessSync(place, constants.X_OK)
    return { path, dev: info.dev, ino: info.ino }
  })

/** The program that a name stands for in a sandbox with an image: as `findExecutable`, but nothing of the host is found. */
export const findInImage = (grant: SandboxGrant, name: string, path: string): ExecutableLookup => {
  const places = name.includes('/')
    ? [posix.resolve(grant.writable, name)]
    : path.split(':').map((one) => posix.resolve(grant.writable, one, name))
  for (const place of name === '' ? [] : places) {
    const executable = programAt(grant, place)
    if (executable !== null) return { kind: 'found', executable }
  }
  const where = name.includes('/') ? 'is no program' : `is in no directory of ${path}`
  return { kind: 'missing', why: 'not_found', path: null, detail: `${JSON.stringify(name)} ${where} in the image ${grant.image?.name}` }
}

/** What a program of an image is known by: the name that it is called by, and that of its file behind links. */
export const namesInImage = (grant: SandboxGrant, { path }: Executable): readonly string[] => [
  basename(path),
  basename(attempt(() => seenIn(grant, path)) ?? path),
]
