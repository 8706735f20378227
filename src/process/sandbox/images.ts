import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, readdir, rename, rm, stat, utimes } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { Transform } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { AppError, attempt, errnoOf, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { findExecutable } from '../../policy/executable.ts'
import type { SandboxImage } from '../../policy/permit.ts'
import type { SandboxSettings } from '../../policy/sandbox/sandbox-settings.ts'
import {
  IMAGE_ASK_MS,
  IMAGE_KEPT_MS,
  IMAGE_LEFT_MS,
  IMAGE_SPARED_MS,
  IMAGE_UNPACK_MS,
  MAX_IMAGES_KEPT,
  MAX_IMAGE_BYTES,
  MAX_IMAGE_FILES,
} from '../../protocol/limits/daemon.ts'
import { MAX_WRAPPER_TEXT } from '../pid-namespace.ts'
import { bubblewrapArguments } from './bubblewrap.ts'
import { callFilter } from './seccomp-filter.ts'

/** Variables by which a container engine finds its images. */
const ENGINE_VARIABLES = /^(PATH|HOME|USER|TMPDIR|XDG_.*|CONTAINERS_.*|DOCKER_.*)$/
export const engineEnv = (): Record<string, string> =>
  Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) => (value !== undefined && ENGINE_VARIABLES.test(name) ? [[name, value]] : [])),
  )

const MAX_INSPECT_BYTES = 1024 * 1024

/** Runs an engine and returns its output. Throws its complaint. */
export const ask = async (engine: string, args: readonly string[]): Promise<string> => {
  const child = spawn(engine, args, {
    env: engineEnv(),
    cwd: '/',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: IMAGE_ASK_MS,
    killSignal: 'SIGKILL',
  })
  const closed = once(child, 'close') as Promise<[number | null]>
  let [text, complaint] = ['', '']
  child.stdout.on('data', (chunk: Buffer) => {
    text = (text + chunk.toString()).slice(0, MAX_INSPECT_BYTES)
  })
  child.stderr.on('data', (chunk: Buffer) => {
    complaint = (complaint + chunk.toString()).slice(0, MAX_WRAPPER_TEXT)
  })
  const [code] = await closed
  if (code !== 0) throw new Error(complaint.trim() || `it ended with ${code ?? `a signal, or took more than ${IMAGE_ASK_MS / 1_000} s`}`)
  return text
}

export const NEW = 'new-'
/** The name identifies leftovers of a crash. */
export const containerOf = (fresh: string): string => `x0x-${basename(fresh)}`

/** Makes read-only directories of an image writable if removing fails. */
export const discard = async (path: string): Promise<void> =>
  rm(path, { recursive: true, force: true }).catch(async () => {
    await ask('chmod', ['-R', 'u+rwX', path])
    await rm(path, { recursive: true, force: true })
  })

/** Image names that any process has mounted. */
const mountedOf = async (names: readonly string[]): Promise<ReadonlySet<string>> => {
  const mounted = new Set<string>()
  if (names.length === 0) return mounted
  const pids = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))
  // Read one by one, because there may be many and only an unpacking waits.
  for (const pid of pids) {
    const mounts = await readFile(`/proc/${pid}/mountinfo`, 'latin1').catch(() => '')
    for (const name of names) if (mounts.includes(`/${name}`)) mounted.add(name)
  }
  return mounted
}

/**
 * Makes room for one more image: removes images that were not used for long, the least recently used above the limit, and leftovers of a
 * crash. Keeps mounted images and recently requested ones, which may be mounted soon.
 */
export const dropUnused = async (engine: string, directory: string, now = Date.now()): Promise<void> => {
  const names = await readdir(directory)
  const found = await Promise.all(
    names.map(async (name) => ({ name, used: (await stat(join(directory, name)).catch(() => null))?.ctimeMs ?? 0 })),
  )
  const [left, images] = [found.filter(({ name }) => name.startsWith(NEW)), found.filter(({ name }) => !name.startsWith(NEW))]
  const recent = images.sort((one, other) => other.used - one.used).slice(0, MAX_IMAGES_KEPT - 1)
  const old = images.filter((one) => now - one.used > IMAGE_SPARED_MS && (!recent.includes(one) || now - one.used > IMAGE_KEPT_MS))
  const mounted = await mountedOf(old.map(({ name }) => name))
  for (const { name } of old.filter((one) => !mounted.has(one.name))) await discard(join(directory, name)).catch(() => undefined)
  for (const { name } of left.filter(({ used }) => now - used > IMAGE_LEFT_MS)) {
    await ask(engine, ['rm', containerOf(name)]).catch(() => undefined)
    await discard(join(directory, name)).catch(() => undefined)
  }
}

/** Command of a container that is never started, for an image without a command. */
const NO_COMMAND = '/x0x-never-started'

interface Inspected {
  readonly id: string
  readonly env: Readonly<Record<string, string>>
}

const inspectedOf = (text: string): Inspected => {
  const [image] = JSON.parse(text) as readonly { readonly Id?: unknown; readonly Config?: { readonly Env?: unknown } | null }[]
  const id = /^(?:sha256:)?([0-9a-f]{64})$/.exec(String(image?.Id))?.[1]
  if (id === undefined) throw new Error('the engine reports no ID of it')
  const given = image?.Config?.Env
  const list = Array.isArray(given)
    ? given.filter((one): one is string => typeof one === 'string' && /^[A-Za-z_]\w*=/.test(one) && !one.includes('\0'))
    : []
  return { id, env: Object.fromEntries(list.map((one) => [one.slice(0, one.indexOf('=')), one.slice(one.indexOf('=') + 1)])) }
}

/** Fails above MAX_IMAGE_BYTES. */
const bounded = (): Transform => {
  let bytes = 0
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      done(bytes > MAX_IMAGE_BYTES ? new Error(`it has more than ${MAX_IMAGE_BYTES} bytes`) : null, chunk)
    },
  })
}

/**
 * podman opens its output by name, which works for a pipe but not for the socket of a child. A failed export must not look like an end of
 * file.
 */
const EXPORT = '{ "$0" export "$1" || kill -KILL $$; } | cat'

/** Unpacks a container's export. tar runs in a sandbox that has only the new directory, so that no archive can write elsewhere. */
const unpack = async (engine: string, container: string, directory: string, userNamespace: boolean): Promise<number> => {
  const [bwrap, tar, filter] = [findExecutable('bwrap'), findExecutable('tar'), callFilter()]
  if (bwrap.kind !== 'found' || tar.kind !== 'found' || filter === null) throw new Error('it needs bubblewrap and tar to be unpacked')
  const grant = { network: false, readable: [], home: '/', image: null }
  const words = bubblewrapArguments({ grant, writable: directory, env: {}, shown: [], marker: '.x0x-unpacking', userNamespace })
  const options = ['-x', '-v', '--no-same-owner', '--no-same-permissions', '--delay-directory-restore', '-C', directory]
  // Root's tar would create directories that their owner cannot write.
  const user = userNamespace ? ['--uid', '1', '--gid', '1'] : []
  const from = spawn('/bin/sh', ['-c', EXPORT, engine, container], {
    env: engineEnv(),
    cwd: '/',
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const to = spawn(bwrap.executable.path, ['--seccomp', '3', ...words, ...user, '--', tar.executable.path, ...options], {
    env: {},
    cwd: '/',
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  })
  const ends = Promise.all([once(from, 'close'), once(to, 'close')]) as Promise<(number | null)[][]>
  // A failed start may be reported before the pipe ends.
  ends.catch(() => undefined)
  const problems: string[] = []
  const stop = (why: string): void => {
    problems.push(why)
    const { pid } = from
    if (pid !== undefined) attempt(() => process.kill(-pid, 'SIGKILL'))
    to.kill('SIGKILL')
  }
  const calls = to.stdio[3] as unknown as NodeJS.WritableStream
  calls.on('error', () => {}).end(filter)
  let [files, complaint] = [0, '']
  to.stdout.on('data', (chunk: Buffer) => {
    for (const byte of chunk) if (byte === 10) files += 1
    if (files > MAX_IMAGE_FILES) stop(`it has more than ${MAX_IMAGE_FILES} files`)
  })
  for (const stream of [from.stderr, to.stderr])
    stream.on('data', (chunk: Buffer) => {
      complaint = (complaint + chunk.toString()).slice(0, MAX_WRAPPER_TEXT)
    })
  const late = setTimeout(() => stop(`it took more than ${IMAGE_UNPACK_MS / 1_000} s`), IMAGE_UNPACK_MS)
  await pipeline(from.stdout, bounded(), to.stdin).catch((error: unknown) => {
    // tar has ended and reports its own success or failure.
    if (!['EPIPE', 'ERR_STREAM_PREMATURE_CLOSE'].includes(errnoOf(error) ?? '')) stop(errorText(error))
  })
  const codes = (await ends.finally(() => clearTimeout(late))).map(([code]) => code)
  const [why] = problems
  if (why !== undefined || codes.some((code) => code !== 0)) throw new Error(why ?? (complaint.trim() || 'the engine did not export it'))
  return files
}

/** Image files, each unpacked once into a private directory named after the image's ID. */
export class ImageStore {
  #underway: Promise<unknown> = Promise.resolve()
  readonly #log: Pick<Logger, 'info'> | null

  /** `log` explains why a command waits. */
  constructor(log: Pick<Logger, 'info'> | null = null) {
    this.#log = log
  }

  /**
   * Returns the current image, unpacked. Throws `sandbox_unavailable` with a remedy. `directory` holds all images and is created if
   * missing.
   */
  async image({ engine, image: name }: SandboxSettings, directory: string, userNamespace: boolean): Promise<SandboxImage> {
    const tool = findExecutable(engine)
    if (tool.kind !== 'found') throw unavailable(`${engine} cannot be used (${tool.detail}): install it, or set engine = "bubblewrap"`)
    const found = await ask(tool.executable.path, ['image', 'inspect', name ?? ''])
      .then(inspectedOf)
      .catch((error: unknown) => {
        throw unavailable(engineProblem(engine, name ?? '', errorText(error)))
      })
    const root = join(directory, `${engine}-${found.id}`)
    // Serialized, so that each finds what an earlier one unpacked.
    const make = async (): Promise<void> => {
      if (!existsSync(root)) {
        this.#log?.info({ image: name, id: found.id }, 'the files of an image are being unpacked')
        const files = await unpacked(tool.executable.path, { id: found.id, directory, root, userNamespace })
        this.#log?.info({ image: name, id: found.id, files }, 'the files of an image are unpacked')
      }
      const now = new Date()
      await utimes(root, now, now)
    }
    const next = this.#underway.then(make)
    this.#underway = next.catch(() => undefined)
    await next.catch((error: unknown) => {
      throw unavailable(`the image ${name} could not be unpacked: ${errorText(error)}; look with ${engine} image inspect ${name}`)
    })
    return { name: name ?? '', id: found.id, root, env: found.env }
  }
}

/** Complaints of engines, and remedies. */
const ENGINE_PROBLEMS: readonly (readonly [
  complaint: RegExp,
  says: (engine: string, name: string) => readonly [what: string, remedy: string],
])[] = [
  [/no such (image|object)|image not known/i, (engine, name) => [`${engine} has no image ${name}`, `${engine} pull ${name}`]],
  [
    /permission denied/i,
    (engine) => [
      `${engine} does not let this user in`,
      'run it rootless (access to its socket is equal to root), or use engine = "podman", which needs no daemon',
    ],
  ],
  [
    /cannot connect|connection refused/i,
    (engine) => [
      `${engine} does not answer`,
      `start it (systemctl start ${engine}), say by DOCKER_HOST where it listens, or take engine = "podman", which needs no daemon`,
    ],
  ],
]

const engineProblem = (engine: string, name: string, complaint: string): string => {
  const [, says] = ENGINE_PROBLEMS.find(([known]) => known.test(complaint)) ?? []
  const [what, remedy] = says?.(engine, name) ?? [`${engine} does not say what ${name} is`, `look with ${engine} image inspect ${name}`]
  return `${what} (${complaint}): ${remedy}`
}

const unavailable = (why: string): AppError => new AppError('sandbox_unavailable', `no sandbox is available on this machine: ${why}`)

const unpacked = async (
  engine: string,
  {
    id,
    directory,
    root,
    userNamespace,
  }: { readonly id: string; readonly directory: string; readonly root: string; readonly userNamespace: boolean },
): Promise<number> => {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  await dropUnused(engine, directory)
  const fresh = await mkdtemp(join(directory, NEW))
  const container = containerOf(fresh)
  try {
    // The image exists, so nothing is downloaded.
    await ask(engine, ['create', '--pull', 'never', '--name', container, id, NO_COMMAND])
    const files = await unpack(engine, container, fresh, userNamespace)
    // Another process may have been faster. Its files are the same.
    await rename(fresh, root).catch((error: unknown) => {
      if (!existsSync(root)) throw error
    })
    return files
  } finally {
    await ask(engine, ['rm', container]).catch(() => undefined)
    await discard(fresh)
  }
}
