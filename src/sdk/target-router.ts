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
/** The file names one target only. */
const MAX_PROJECT_FILE = 16 * 1024

/** The contents of a project file. */
export interface Project {
  readonly file: string
  readonly target: string
  /** The project's directory on the target. */
  readonly cwd: string | null
}

/**
 * The nearest `.rexd.json` in a directory or its parents, such as `{ "target": "server-a", "cwd": "/srv/app" }`, or null if absent. Throws
 * an `Error` with its name if it is invalid or unreadable. Also throws if it is owned by another user (except root) or writable by others,
 * because its writer chooses where commands run.
 */
export const findProject = async (directory: string): Promise<Project | null> => {
  for (let at = resolve(directory); ; at = dirname(at)) {
    const file = join(at, PROJECT_FILE)
    const text = await readOwn(file)
    if (text !== null) return projectOf(file, text)
    if (dirname(at) === at) return null
  }
}

/** Null if it does not exist. */
const readOwn = async (file: string): Promise<string | null> => {
  try {
    // With O_NONBLOCK, a pipe does not block this process before it is recognised.
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
  if (unknown !== undefined) throw new Error(`${file}: unknown key ${JSON.stringify(unknown)}; known keys: "target", "cwd"`)
  if (typeof target !== 'string' || target === '') throw new Error(`${file}: target: must be the name of a target`)
  if (cwd !== null && (typeof cwd !== 'string' || cwd === '')) throw new Error(`${file}: cwd: must be a path on the target`)
  return { file, target, cwd }
}

/** A path without `.`, `..` and a trailing slash. Throws a `TypeError` for a relative path. */
const plain = (path: string): string => {
  if (!posix.isAbsolute(path)) throw new TypeError(`${JSON.stringify(path)} is not an absolute path`)
  const normal = posix.normalize(path)
  return normal.length > 1 && normal.endsWith('/') ? normal.slice(0, -1) : normal
}

/** Finds the target of a path by its longest prefix of whole names. `/srv/app` does not match `/srv/app2`. */
export class PathRules {
  readonly #rules: readonly { readonly prefix: string; readonly target: string }[]

  /** Throws a `TypeError` for a prefix that is relative or repeated. */
  constructor(paths: Readonly<Record<string, string>>) {
    const rules = Object.entries(paths).map(([prefix, target]) => ({ prefix: plain(prefix), target }))
    const twice = rules.find(({ prefix }, i) => rules.findIndex((other) => other.prefix === prefix) !== i)
    if (twice !== undefined) throw new TypeError(`${JSON.stringify(twice.prefix)} is listed twice`)
    this.#rules = rules.sort((a, b) => b.prefix.length - a.prefix.length)
  }

  get targets(): readonly string[] {
    return this.#rules.map(({ target }) => target)
  }

  /** Null if no rule matches. A relative path starts at `cwd`. Without `cwd` it matches no rule. */
  find(path: string, cwd: string | undefined): { readonly prefix: string; readonly target: string } | null {
    if (!posix.isAbsolute(path) && (cwd === undefined || !posix.isAbsolute(cwd))) return null
    const whole = plain(posix.isAbsolute(path) ? path : posix.join(cwd!, path))
    const fits = (prefix: string): boolean => prefix === '/' || whole === prefix || whole.startsWith(`${prefix}/`)
    return this.#rules.find(({ prefix }) => fits(prefix)) ?? null
  }
}

/** A server where commands may run. */
export interface Target {
  readonly transport: TransportFactory
  /** The agent of the mesh behind that server. The default is the server itself. */
  readonly agent?: string
  /** Directories that its session is confined to, by default all that its server allows. */
  readonly roots?: readonly string[]
  /** Working directory of commands and start of relative paths, by default the first root. */
  readonly cwd?: string
}

export interface TargetRouterInit {
  readonly targets: Readonly<Record<string, Target>>
  /** Name of the client for the servers' journals. */
  readonly clientName: string
  /** The target if no other source selects one. Without it that is an error, even with a single target. */
  readonly defaultTarget?: string
  /** Path prefixes with their targets, such as `{ '/srv/app': 'server-a' }`. */
  readonly paths?: Readonly<Record<string, string>>
  /** Targets that a project file may choose, because anybody may have written it. Default: all. */
  readonly projectTargets?: readonly string[]
}

export type TargetReason = 'selected' | 'project' | 'path' | 'carried' | 'default'

export interface ResolvedTarget {
  readonly target: string
  readonly reason: TargetReason
  /** The project file or the path prefix, or null for the other reasons. */
  readonly by: string | null
  /** Working directory there, from the project or the target, or null for its first root. */
  readonly cwd: string | null
}

export interface ResolveOptions {
  /** The path to work on, by default the caller's directory. */
  readonly path?: string
  /** The caller's directory on this host, where the search for a project file starts. */
  readonly cwd?: string
}

interface Opened {
  readonly client: RexdClient
  readonly session: RexdSession
}

/** The target does not exist, or no target was selected. It lists the existing ones. */
export class UnknownTarget extends Error {
  override readonly name = 'UnknownTarget'
  readonly candidates: readonly string[]

  constructor(message: string, init: { candidates: readonly string[] }) {
    super(`${message}; there are ${init.candidates.length === 0 ? 'none' : init.candidates.join(', ')}`)
    this.candidates = init.candidates
  }
}

/**
 * Selects the server of a command or path. Keep it outside the model's view. The model has one set of tools, and this decides where they
 * work. The first source that names a target decides. The sources are `select`, the project file, the path prefix, the last choice and the
 * default, in this order. An unknown name is an error. No later source replaces it.
 */
export class TargetRouter {
  readonly #targets: ReadonlyMap<string, Target>
  readonly #paths: PathRules
  readonly #default: string | null
  readonly #ofProjects: readonly string[]
  readonly #clientName: string
  readonly #opened = new Map<string, Promise<Opened>>()
  /** Lost connections that are being closed. */
  readonly #leaving = new Set<Promise<void>>()
  #selected: string | null = null
  #carried: string | null = null
  #turn: Promise<unknown> = Promise.resolve()
  #closed = false

  /** Throws `UnknownTarget` if a rule or the default names an unknown target. */
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

  /** Overrides all other sources from now on. Throws `UnknownTarget`. */
  select(name: string): void {
    this.#known(name, 'select')
    this.#selected = name
    this.#carried = name
  }

  /** Undoes `select` and forgets the last choice. */
  clear(): void {
    this.#selected = null
    this.#carried = null
  }

  /**
   * The target and its source. Calls are answered in order, because each answer may be the last choice for the next. Rejects with
   * `UnknownTarget`, and with an `Error` for an invalid project file.
   */
  async resolve(options: ResolveOptions = {}): Promise<ResolvedTarget> {
    const mine = this.#turn.then(async () => this.#resolve(options))
    this.#turn = mine.catch(() => undefined)
    return mine
  }

  /** The session of a target, opened at the first call and after a loss or close. It is `resumable` if the transport supports it. */
  async session(name: string, { signal }: CallOptions = {}): Promise<RexdSession> {
    signal?.throwIfAborted()
    const target = this.#known(name, 'session')
    return orAborted(this.#session(name, target), signal)
  }

  /** Closes every connection for good. */
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
    const what = target === undefined ? 'no target' : 'the client may not choose the target'
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
    throw new UnknownTarget('the target is not given', { candidates: this.targets })
  }

  /** The default does not become the last choice, because it was not chosen. */
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

  /** Opens the session on the existing connection or a new one. */
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
