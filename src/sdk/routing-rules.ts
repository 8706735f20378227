import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join, posix, resolve } from 'node:path'
import { textOf } from './errors.ts'

const PROJECT_FILE = '.rexd.json'
/** It names one target. */
const MAX_PROJECT_FILE = 16 * 1024

/** What a project says of itself. */
export interface Project {
  /** The file that says it. */
  readonly file: string
  readonly target: string
  /** Where the project is on the target. */
  readonly cwd: string | null
}

/**
 * The nearest `.rexd.json` in a directory or above it: `{ "target": "server-a", "cwd": "/srv/app" }`; null where there is
 * none. Throws an `Error` that names the file where it is anything else, cannot be read, is not a file of this user (or
 * root's), or may be written by others: whoever writes it says where commands run.
 */
export const findProject = async (directory: string): Promise<Project | null> => {
  for (let at = resolve(directory); ; at = dirname(at)) {
    const file = join(at, PROJECT_FILE)
    const text = await readOwn(file)
    if (text !== null) return projectOf(file, text)
    if (dirname(at) === at) return null
  }
}

/** Null: it is not there. */
const readOwn = async (file: string): Promise<string | null> => {
  try {
    // A pipe must not hold us before we see that it is one.
    const handle = await open(file, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0))
    try {
      const info = await handle.stat()
      const own = process.getuid?.()
      if (!info.isFile()) throw new Error('it is not a regular file')
      if (own !== undefined && info.uid !== own && info.uid !== 0) throw new Error('it belongs to another user')
      if (own !== undefined && (info.mode & 0o022) !== 0) throw new Error('others may write it')
      if (info.size > MAX_PROJECT_FILE) throw new Error(`it has more than ${MAX_PROJECT_FILE} bytes`)
      return await handle.readFile('utf8')
    } finally {
      await handle.close()
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ENOTDIR') return null
    throw new Error(`${file}: ${textOf(error)}`, { cause: error })
  }
}

const projectOf = (file: string, text: string): Project => {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new Error(`${file}: ${textOf(error)}`, { cause: error })
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${file}: not an object`)
  const { target, cwd = null, ...rest } = value as Record<string, unknown>
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined) throw new Error(`${file}: ${JSON.stringify(unknown)} is no key of it; there are "target" and "cwd"`)
  if (typeof target !== 'string' || target === '') throw new Error(`${file}: target: must be the name of a target`)
  if (cwd !== null && (typeof cwd !== 'string' || cwd === '')) throw new Error(`${file}: cwd: must be a path on the target`)
  return { file, target, cwd }
}

/** A path without `.`, `..` and a slash at its end. Throws a `TypeError` for one that is not whole. */
const plain = (path: string): string => {
  if (!posix.isAbsolute(path)) throw new TypeError(`${JSON.stringify(path)} is not an absolute path`)
  const normal = posix.normalize(path)
  return normal.length > 1 && normal.endsWith('/') ? normal.slice(0, -1) : normal
}

/** Which target belongs to a path, by the longest prefix that fits it: by whole names, so that `/srv/app` is none of `/srv/app2`. */
export class PathRules {
  readonly #rules: readonly { readonly prefix: string; readonly target: string }[]

  /** Throws a `TypeError` for a prefix that is not absolute or is there twice. */
  constructor(paths: Readonly<Record<string, string>>) {
    const rules = Object.entries(paths).map(([prefix, target]) => ({ prefix: plain(prefix), target }))
    const twice = rules.find(({ prefix }, i) => rules.findIndex((other) => other.prefix === prefix) !== i)
    if (twice !== undefined) throw new TypeError(`${JSON.stringify(twice.prefix)} is there twice`)
    this.#rules = rules.sort((a, b) => b.prefix.length - a.prefix.length)
  }

  get targets(): readonly string[] {
    return this.#rules.map(({ target }) => target)
  }

  /** Null: no rule fits. A relative path begins at `cwd`; without that no rule fits it. */
  find(path: string, cwd: string | undefined): { readonly prefix: string; readonly target: string } | null {
    if (!posix.isAbsolute(path) && (cwd === undefined || !posix.isAbsolute(cwd))) return null
    const whole = plain(posix.isAbsolute(path) ? path : posix.join(cwd!, path))
    const fits = (prefix: string): boolean => prefix === '/' || whole === prefix || whole.startsWith(`${prefix}/`)
    return this.#rules.find(({ prefix }) => fits(prefix)) ?? null
  }
}
