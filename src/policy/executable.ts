import { accessSync, constants, statSync } from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { attempt, errorText } from '../base/errors.ts'
import { writableByOthers } from '../base/file-permissions.ts'
import { realPath } from '../base/path-resolution.ts'
import { SCRUBBED_PATH } from './environment.ts'
import type { Executable } from './permit.ts'
import { type FindProgram, interpreterProblems } from './scripts.ts'

export type ExecutableLookup =
  | { readonly kind: 'found'; readonly executable: Executable }
  /** The program does not exist, or may not be executed. Then `path` names the file. */
  | { readonly kind: 'missing'; readonly why: 'not_found' | 'not_executable'; readonly path: string | null; readonly detail: string }
  /** Another user could replace the program or its interpreter. */
  | { readonly kind: 'unsafe'; readonly path: string; readonly detail: string; readonly executable: Executable }

/** Finds a program by an absolute path, or by a bare name in `path`. Repeated for each permit, to pin the present file. */
export const findExecutable = (name: string, path = SCRUBBED_PATH): ExecutableLookup => {
  const candidates = isAbsolute(name) ? [name] : path.split(':').map((directory) => join(directory, name))
  if (name === '' || (name.includes('/') && !isAbsolute(name)))
    return { kind: 'missing', why: 'not_found', path: null, detail: `${JSON.stringify(name)} is neither an absolute path nor a bare name` }
  for (const candidate of candidates) {
    const executable = executableAt(candidate)
    if (executable) return judged(executable, path)
  }
  // Like execvp(3), skips a file that is not executable, and reports it if no other is found.
  const barred = candidates.find((candidate) => attempt(() => statSync(candidate)) !== null)
  if (barred !== undefined)
    return { kind: 'missing', why: 'not_executable', path: barred, detail: `${barred} exists, but is not executable` }
  const whole = /\s/.test(name)
    ? '; quote each word of a command separately, as in ["df", "-h"]'
    : /[*?]|\[.*\]|\{.*\}/.test(name)
      ? '; wildcards are not allowed in a program name'
      : ''
  const where = `${isAbsolute(name) ? 'does not exist' : `is in no directory of ${path}`}${whole}`
  return { kind: 'missing', why: 'not_found', path: null, detail: `${JSON.stringify(name)} ${where}` }
}

/** True if the program is the file at an absolute path or at a bare name in a directory of `path`, even if others may write there. */
export const isCalled = ({ dev, ino }: Executable, name: string, path = SCRUBBED_PATH): boolean =>
  filesCalled(name, path).has(`${dev}:${ino}`)

/** Files, as `dev:ino`, at an absolute path or at a bare name in all directories of `path`. */
export const filesCalled = (name: string, path: string): ReadonlySet<string> =>
  new Set(
    (isAbsolute(name) ? [name] : path.split(':').map((directory) => join(directory, name))).flatMap((candidate) => {
      const info = attempt(() => statSync(candidate, { bigint: true, throwIfNoEntry: false }))
      return info === null || info === undefined ? [] : [`${info.dev}:${info.ino}`]
    }),
  )

/** Programs that contain many commands and act by the name under which they are called. */
export const MULTI_CALL: readonly string[] = ['busybox', 'toybox', 'coreutils']

/** True if the file is a multi-call program under the name of one of its commands. */
export const isApplet = (executable: Executable, path = SCRUBBED_PATH): boolean => {
  if (MULTI_CALL.includes(basename(executable.path))) return false
  return (
    MULTI_CALL.some((name) => isCalled(executable, name, path) || isCalled(executable, join(dirname(executable.path), name))) ||
    MULTI_CALL.includes(basename(realPath(executable.path)))
  )
}

const executableAt = (path: string): Executable | null =>
  attempt(() => {
    const info = statSync(path, { bigint: true, throwIfNoEntry: false })
    if (!info?.isFile()) return null
    accessSync(path, constants.X_OK)
    return { path, dev: info.dev, ino: info.ino }
  })

const judged = (executable: Executable, path: string): ExecutableLookup => {
  try {
    const problems = [...writableByOthers(executable.path), ...interpreterProblems(executable.path, finderIn(path))]
    return problems.length === 0
      ? { kind: 'found', executable }
      : { kind: 'unsafe', path: executable.path, detail: problems.join('; '), executable }
  } catch (error) {
    return { kind: 'unsafe', path: executable.path, detail: errorText(error), executable }
  }
}

/** Finds a bare name in `path`, like execvp(3). */
export const finderIn =
  (path: string): FindProgram =>
  (name) =>
    path
      .split(':')
      .map((directory) => executableAt(join(directory, name)))
      .find((found) => found !== null)?.path ?? null
