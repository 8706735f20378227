import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname, join, posix, resolve } from 'node:path'
import { type OpenOptions, type RexdClient, connect } from './client.ts'
import { RexdDisconnected, quote, textOf } from './errors.ts'
import { present } from './fields.ts'
import { type CallOptions, orAborted } from './promises.ts'
import type { RexdSession } from './session.ts'
import type { TransportFactory } from './transport.ts'

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

/** A place where commands may run. */
export interface Target {
  readonly transport: TransportFactory
  /** The agent of the mesh behind that server; the server itself unless told. */
  readonly agent?: string
  /** Directories that its session is confined to, below those that its server allows; all of those unless told. */
  readonly roots?: readonly string[]
  /** Where commands run and relative paths begin; the first root unless told. */
  readonly cwd?: string
}

export interface TargetRouterInit {
  /** Every target there is, by its name. */
  readonly targets: Readonly<Record<string, Target>>
  /** Who asks, for the journals of the servers. */
  readonly clientName: string
  /** Where nothing else says which. Without it that is an error, also where there is but one. */
  readonly defaultTarget?: string
  /** A prefix of paths, and the target that they belong to: `{ '/srv/app': 'server-a' }`. */
  readonly paths?: Readonly<Record<string, string>>
  /** Targets that a project's file may choose; all of them unless told. A project may come from anybody. */
  readonly projectTargets?: readonly string[]
}

/** What said which target it is. */
export type TargetReason = 'selected' | 'project' | 'path' | 'carried' | 'default'

export interface ResolvedTarget {
  readonly target: string
  readonly reason: TargetReason
  /** The project's file, or the prefix of the path; null for the other reasons. */
  readonly by: string | null
  /** Where commands run there: as the project says, else as the target does; null: at its first root. */
  readonly cwd: string | null
}

export interface ResolveOptions {
  /** What is to be touched; where the caller works unless told. */
  readonly path?: string
  /** Where the caller works on this host: a project's file is looked for there and above. */
  readonly cwd?: string
}

interface Opened {
  readonly client: RexdClient
  readonly session: RexdSession
}

/** No such target, or none was said; it lists those there are. */
export class UnknownTarget extends Error {
  override readonly name = 'UnknownTarget'
  readonly candidates: readonly string[]

  constructor(message: string, init: { candidates: readonly string[] }) {
    super(`${message}; there are ${init.candidates.length === 0 ? 'none' : init.candidates.join(', ')}`)
    this.candidates = init.candidates
  }
}

/**
 * Which server a command or a path belongs to. The caller keeps it outside of what a model sees: the model has one set of
 * tools, and this says where they work. The first that says something decides: `select`, the project's file, the prefix of
 * the path, what was chosen last, the default. Nothing that is unknown is passed over for the next.
 */
export class TargetRouter {
  readonly #targets: ReadonlyMap<string, Target>
  readonly #paths: PathRules
  readonly #default: string | null
  readonly #ofProjects: readonly string[]
  readonly #clientName: string
  readonly #opened = new Map<string, Promise<Opened>>()
  /** Connections that were lost. */
  readonly #leaving = new Set<Promise<void>>()
  #selected: string | null = null
  #carried: string | null = null
  #turn: Promise<unknown> = Promise.resolve()
  #closed = false

  /** Throws `UnknownTarget` where a rule or the default names a target that there is not. */
  constructor({ targets, clientName, defaultTarget, paths = {}, projectTargets }: TargetRouterInit) {
    this.#targets = new Map(Object.entries(targets))
    this.#ofProjects = projectTargets ?? this.targets
    this.#clientName = clientName
    this.#paths = new PathRules(paths)
    this.#default = defaultTarget ?? null
    for (const name of this.#paths.targets) this.#known(name, 'paths')
    for (const name of this.#ofProjects) this.#known(name, 'projectTargets')
    if (defaultTarget !== undefined) this.#known(defaultTarget, 'defaultTarget')
  }

  get targets(): readonly string[] {
    return [...this.#targets.keys()]
  }

  /** From now on it is this one, whatever else would say another. Throws `UnknownTarget`. */
  select(name: string): void {
    this.#known(name, 'select')
    this.#selected = name
    this.#carried = name
  }

  /** Takes back `select`, and forgets what was chosen last. */
  clear(): void {
    this.#selected = null
    this.#carried = null
  }

  /**
   * Which target it is, and what said so. Questions are answered one after the other, as each answer may be what the next
   * goes on with. Rejects with `UnknownTarget`, and with an `Error` for a project's file that is not right.
   */
  async resolve(options: ResolveOptions = {}): Promise<ResolvedTarget> {
    const mine = this.#turn.then(async () => this.#resolve(options))
    this.#turn = mine.catch(() => undefined)
    return mine
  }

  /** The session of a target: opened when it is asked for the first time, and again after it was lost or closed; `resumable` where the transport has that. */
  async session(name: string, { signal }: CallOptions = {}): Promise<RexdSession> {
    signal?.throwIfAborted()
    const target = this.#known(name, 'session')
    return orAborted(this.#session(name, target), signal)
  }

  /** Closes every connection; nothing is opened any more. */
  async close(): Promise<void> {
    this.#closed = true
    const opened = [...this.#opened.values()]
    this.#opened.clear()
    await Promise.all(opened.map(async (one) => one.then(async ({ client }) => client.close()).catch(() => undefined)))
    await Promise.all(this.#leaving)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #known(name: string, where: string, candidates = this.targets): Target {
    const target = this.#targets.get(name)
    if (target !== undefined && candidates.includes(name)) return target
    const what = target === undefined ? 'there is no target' : 'it may not choose the target'
    throw new UnknownTarget(`${where}: ${what} ${JSON.stringify(quote(name))}`, { candidates })
  }

  async #resolve({ path, cwd }: ResolveOptions): Promise<ResolvedTarget> {
    if (this.#selected !== null) return this.#answer(this.#selected, 'selected', null)
    const project = cwd === undefined ? null : await findProject(cwd)
    if (project !== null) {
      this.#known(project.target, project.file, this.#ofProjects)
      return { ...this.#answer(project.target, 'project', project.file), ...(project.cwd === null ? {} : { cwd: project.cwd }) }
    }
    const rule = this.#paths.find(path ?? '.', cwd)
    if (rule !== null) return this.#answer(rule.target, 'path', rule.prefix)
    if (this.#carried !== null) return this.#answer(this.#carried, 'carried', null)
    if (this.#default !== null) return this.#answer(this.#default, 'default', null)
    throw new UnknownTarget('nothing says which target it is', { candidates: this.targets })
  }

  /** A default is not carried: it is what nobody chose. */
  #answer(target: string, reason: TargetReason, by: string | null): ResolvedTarget {
    if (reason !== 'default') this.#carried = target
    return { target, reason, by, cwd: this.#targets.get(target)?.cwd ?? null }
  }

  async #session(name: string, target: Target): Promise<RexdSession> {
    const before = this.#opened.get(name)
    const opened = await before
    if (opened !== undefined && !opened.session.ended) return opened.session
    // Another call has opened it meanwhile.
    if (this.#opened.get(name) !== before) return this.#session(name, target)
    if (this.#closed) throw new RexdDisconnected('the router is closed', { sent: false })
    const opening = this.#open(target, opened?.client)
    this.#opened.set(name, opening)
    opening.catch(() => {
      if (this.#opened.get(name) === opening) this.#opened.delete(name)
    })
    return (await opening).session
  }

  /** On the connection that there is, or a new one. */
  async #open({ transport, agent, roots, cwd }: Target, before: RexdClient | undefined): Promise<Opened> {
    const lost = before?.connected === false
    if (lost) this.#leave(before)
    const client = before === undefined || lost ? await connect({ transport }) : before
    try {
      const resumable = transport.keepsSessions ? true : undefined
      const options = present<OpenOptions>({ clientName: this.#clientName, workspaceRoots: roots, cwd, target: agent, resumable })
      return { client, session: await client.open(options) }
    } catch (error) {
      this.#leave(client)
      throw error
    }
  }

  #leave(client: RexdClient): void {
    const leaving = client.close().finally(() => this.#leaving.delete(leaving))
    this.#leaving.add(leaving)
  }
}
