import type { BigIntStats } from 'node:fs'
import { chmod, chown, mkdir, readlink, realpath, rmdir, stat } from 'node:fs/promises'
import { AppError, errnoOf } from '../base/errors.ts'
import { directoryMode } from '../base/file-permissions.ts'
import { MAX_PATH_LINKS, namesOf } from '../base/path-resolution.ts'
import type { Account } from '../policy/account.ts'
import { namesBelow } from '../policy/local/authorize.ts'
import { type FilePermit, type Root, isFilePermit } from '../policy/local/file-permit.ts'
import { utf8Text } from '../protocol/text.ts'
import { type Found, type OpenHandle, filesProblem, holdRoot } from './open-file.ts'
import { forbidden, namingPath, pathOf, systemError, tooMuch } from './refusals.ts'

/** Directories that one walk keeps open, to return to on `..`. */
const MAX_WALK_DEPTH = 128

export interface WalkOptions {
  /** Follow a final link. Otherwise the link itself is found. */
  readonly followLast?: boolean
  /** Create missing directories on the way. */
  readonly makeParents?: boolean
}

export interface Made {
  readonly parent: OpenHandle
  readonly name: string
}

/** Removes the directories that a walk created, unless they contain something. */
export const removeMade = async (made: readonly Made[]): Promise<void> => {
  for (const { parent, name } of made.toReversed()) await rmdir(parent.at(name)).catch(() => {})
}

/**
 * Gives new directories the mode and the owner of new files, as far as `requested` bits allow. Each is held by its descriptor, so that a
 * link that replaces it meanwhile changes nothing else. Throws EPERM if it is not ours any more.
 */
export const giveMade = async (
  made: readonly Made[],
  { mode, account }: { readonly mode: number; readonly account: Account | null },
  requested = 0o777,
): Promise<void> => {
  // The last first, because its directory may become one that the daemon's user cannot enter.
  for (const { parent, name } of made.toReversed()) {
    using directory = await parent.enter(name)
    if ((await directory.stat()).uid !== BigInt(process.geteuid!())) throw systemError('EPERM')
    await chmod(directory.self, directoryMode(mode) & requested)
    if (account !== null) await chown(directory.self, account.uid, account.gid)
  }
}

/** Result of a walk, with an open directory, a name in it, and the file of the name. Dispose of it. */
export class ResolvedPath implements Disposable {
  /** Null if the path led to a directory otherwise than by its name, such as a root, or `..` of a link. */
  readonly directory: OpenHandle | null
  readonly name: string
  /** Null if the name is unused. */
  readonly found: Found | null
  readonly made: readonly Made[]

  constructor(fields: Pick<ResolvedPath, 'directory' | 'name' | 'found' | 'made'>) {
    this.directory = fields.directory
    this.name = fields.name
    this.found = fields.found
    this.made = fields.made
  }

  [Symbol.dispose](): void {
    this.directory?.[Symbol.dispose]()
    this.found?.handle[Symbol.dispose]()
    for (const { parent } of this.made) parent[Symbol.dispose]()
  }
}

/** A valid name is well-formed, has no slash or NUL, and is not empty, `.` or `..`. */
const isName = (name: string): boolean => !/^\.{0,2}$|[/\0]/.test(name) && name.isWellFormed()

/** Target of a link, or null if it is not a link. */
const linkText = async (path: string): Promise<string | null> => {
  let bytes: Buffer
  try {
    bytes = await readlink(path, { encoding: 'buffer' })
  } catch (error) {
    if (errnoOf(error) === 'EINVAL') return null
    throw error
  }
  const text = utf8Text(bytes)
  if (text === null) throw systemError('EILSEQ')
  return text
}

/** The root that contains an absolute path, and the rest of the path. */
const rootOf = (parts: readonly string[], roots: readonly Root[]): { root: Root; rest: string[] } | null => {
  for (const root of roots) {
    for (const way of [namesOf(root.path), namesOf(root.real)])
      if (way.every((part, i) => parts[i] === part)) return { root, rest: parts.slice(way.length) }
  }
  return null
}

/**
 * Walks from a root. Each step takes one name in an open directory. This class reads and follows links itself. So a link or a concurrent
 * rename cannot lead out of the roots.
 */
class Walk {
  readonly #permit: FilePermit
  readonly #options: WalkOptions
  /** Open directories from the root to the current one. */
  #stack: OpenHandle[] = []
  /** Remaining names in reverse order. */
  readonly #ahead: string[] = []
  readonly #made: Made[] = []
  #links = 0

  constructor(permit: FilePermit, options: WalkOptions) {
    this.#permit = permit
    this.#options = options
  }

  async run(): Promise<ResolvedPath> {
    const { root, names } = this.#permit
    try {
      if (!names.every(isName)) throw new AppError('bad_request', 'path: it contains an invalid file name')
      await this.#startAt(root, [...names])
      for (;;) {
        const place = await this.#step()
        if (place !== null) return place
      }
    } catch (error) {
      await removeMade(this.#made)
      this.#release()
      throw error
    }
  }

  get #here(): OpenHandle {
    return this.#stack.at(-1)!
  }

  async #startAt(root: Root, way: string[]): Promise<void> {
    const handle = await holdRoot(root)
    if (handle === null) throw this.#forbidden(`is below ${root.path}, which was replaced`)
    this.#release()
    this.#stack = [handle]
    this.#ahead.push(...way.reverse())
  }

  async #step(): Promise<ResolvedPath | null> {
    const name = this.#ahead.pop()
    if (name === undefined) return this.#place({ directory: null, name: '', found: { handle: this.#here, info: await this.#here.stat() } })
    if (name === '..') this.#up()
    else if (this.#ahead.length === 0) return this.#arrive(name)
    else await this.#into(name)
    return null
  }

  /** Returns to the directory from which this one was entered, because after a rename the system's `..` may be another. */
  #up(): void {
    if (this.#stack.length === 1) throw this.#forbidden('leads out of the allowed roots')
    this.#stack.pop()?.[Symbol.dispose]()
  }

  async #into(name: string): Promise<void> {
    if (this.#stack.length > MAX_WALK_DEPTH) throw tooMuch('path_depth', this.#stack.length, MAX_WALK_DEPTH)
    try {
      this.#stack.push(await this.#here.enter(name))
    } catch (error) {
      const code = errnoOf(error)
      if (code === 'ENOENT' && this.#options.makeParents) return this.#make(name)
      if (code !== 'ENOTDIR' && code !== 'ELOOP') throw error
      if (!(await this.#follow(name))) throw error
    }
  }

  async #make(name: string): Promise<void> {
    try {
      await mkdir(this.#here.at(name))
      this.#made.push({ parent: this.#here, name })
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error
    }
    this.#stack.push(await this.#here.enter(name))
  }

  /** Follows a link. False if it is not or no longer a link. */
  async #follow(name: string): Promise<boolean> {
    if (++this.#links > MAX_PATH_LINKS) throw systemError('ELOOP')
    const target = await linkText(this.#here.at(name))
    if (target === null) return false
    const parts = namesOf(target)
    if (!target.startsWith('/')) {
      this.#ahead.push(...parts.reverse())
      return true
    }
    const allowed = rootOf(parts, this.#permit.roots)
    if (allowed === null) throw this.#forbidden('goes through a link that leads out of the allowed roots')
    await this.#startAt(allowed.root, allowed.rest)
    return true
  }

  async #arrive(name: string): Promise<ResolvedPath | null> {
    const directory = this.#here
    let found: Found
    try {
      found = await directory.look(name)
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error
      return this.#place({ directory, name, found: null })
    }
    const { handle, info } = found
    if (!info.isSymbolicLink() || this.#options.followLast === false) return this.#place({ directory, name, found })
    handle[Symbol.dispose]()
    // The link was replaced by something else, so try again, within the limit of links.
    if (!(await this.#follow(name))) this.#ahead.push(name)
    return null
  }

  /** Closes the directories that the result does not need. */
  #place(fields: Pick<ResolvedPath, 'directory' | 'name' | 'found'>): ResolvedPath {
    const needed = new Set([fields.directory, fields.found?.handle, ...this.#made.map(({ parent }) => parent)])
    for (const handle of this.#stack) if (!needed.has(handle)) handle[Symbol.dispose]()
    return new ResolvedPath({ ...fields, made: this.#made })
  }

  #release(): void {
    for (const handle of this.#stack) handle[Symbol.dispose]()
  }

  #forbidden(why: string): AppError {
    return forbidden(this.#permit, pathOf(this.#permit), why)
  }
}

/**
 * Walks to a permitted path. Throws `forbidden_path` if it leads out of the roots or the root was replaced, `resource_limit` if it is too
 * deep, and errors of the system, such as ENOENT if a directory on the way is missing.
 */
export const beneath = async (permit: FilePermit, options: WalkOptions = {}): Promise<ResolvedPath> => new Walk(permit, options).run()

/** A directory below a root. `path` is as the client knows it. Dispose of it. */
export interface OpenDirectory extends Root, Disposable {
  /** Open descriptor, or null if `filesProblem` is set. Then the fields describe the directory at the time of the check. */
  readonly descriptor: number | null
}

/** Opens the directory of a permit, for starting a program or as a narrower root. Throws `file_error` ENOTDIR for a file. */
export const holdDirectory = async (permit: FilePermit): Promise<OpenDirectory> => {
  if (!isFilePermit(permit)) throw new AppError('internal', 'this needs a permit')
  return namingPath(permit, () => (filesProblem() === null ? hold(permit) : lookAt(permit)))
}

const hold = async (permit: FilePermit): Promise<OpenDirectory> => {
  const place = await beneath(permit)
  try {
    if (place.found === null) throw systemError('ENOENT')
    const { handle, info } = place.found
    if (!info.isDirectory()) throw systemError('ENOTDIR')
    const { dev, ino } = info
    const { descriptor } = handle
    const real = await handle.real()
    await requireAt(real, info)
    return { path: pathOf(permit), real, dev, ino, descriptor, [Symbol.dispose]: () => place[Symbol.dispose]() }
  } catch (error) {
    place[Symbol.dispose]()
    throw error
  }
}

/** Without descriptors of directories, a rename before the program starts is not noticed. */
const lookAt = async (permit: FilePermit): Promise<OpenDirectory> => {
  const path = pathOf(permit)
  const real = await realpath(path)
  if (permit.roots.every((root) => namesBelow(real, root.real) === null))
    throw forbidden(permit, path, 'goes through a link that leads out of the allowed roots')
  const info = await stat(real, { bigint: true })
  if (!info.isDirectory()) throw systemError('ENOTDIR')
  return { path, real, dev: info.dev, ino: info.ino, descriptor: null, [Symbol.dispose]: () => {} }
}

/** The system still reports a path for a removed directory. */
const requireAt = async (real: string, { dev, ino }: BigIntStats): Promise<void> => {
  const there = await stat(real, { bigint: true })
  if (there.dev !== dev || there.ino !== ino) throw systemError('ENOENT')
}
