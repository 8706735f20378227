import { createHash, randomBytes } from 'node:crypto'
import { delimiter, join } from 'node:path'
import { systemClock } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { ensurePrivateDir } from '../../base/file-permissions.ts'
import { homeDirectory } from '../../base/home.ts'
import type { Logger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { type Startable, type StartableEntry, type StopFailure, startAll, stopAll } from '../../base/startable.ts'
import { SOCKET_VARIABLE, consoleSockets, onlyOwn } from '../../base/unix-sockets.ts'
import { setModes } from '../../clients/desk.ts'
import { dataDirOf, instanceChoice, pathsIn } from '../../clients/paths.ts'
import { loadTools } from '../../config/rexd-config.ts'
import { ConsoleListeners } from '../../doors/console/connection.ts'
import { ConsoleHost } from '../../doors/console/host.ts'
import type { ConsoleControls, ConsoleScreen } from '../../doors/console/screen.ts'
import { consoleSession } from '../../executor/local/exec-target.ts'
import { consolePolicy } from '../../policy/local/read-policy.ts'
import { startLocalExecutor } from '../../supervision/local-executor.ts'
import { DataDirLock } from '../../supervision/lock.ts'
import { makeTranscriptsDir, transcriptsDir } from '../../transcripts/directory.ts'
import { TranscriptWriter } from '../../transcripts/writer.ts'

export interface RunningHost {
  /** Paths that it listens on. */
  readonly sockets: readonly string[]
  /** A warning about a path that it could not listen on, or null. */
  readonly warning: string | null
  readonly transcript: string
  /** Aborted when the user at the console ends it. */
  readonly stopped: AbortSignal
  stop(): Promise<readonly StopFailure[]>
}

export interface HostOptions {
  readonly addPath: boolean
  readonly recordEnv: boolean
  /** The configuration of execution modes. Null means this host, without approval. */
  readonly config: string | null
  readonly screen: (controls: ConsoleControls) => ConsoleScreen
}

/** Directories of a user's own programs, below the home directory. */
const OWN_PROGRAMS = ['.local/bin', '.cargo/bin']
/** Time for the grace period of all commands, and for their journal lines. */
const END_MS = 10_000

const withOwnPrograms = (env: Environment): Environment => {
  const path = (env['PATH'] ?? '').split(delimiter).filter((directory) => directory !== '')
  const own = OWN_PROGRAMS.map((directory) => join(homeDirectory(), directory)).filter((directory) => !path.includes(directory))
  return { ...env, PATH: [...own, ...path].join(delimiter) }
}

/** Allows one host per user, or per named socket. The kernel's lock ends with the process. */
const lockOf = async (env: Environment): Promise<DataDirLock> => {
  const named = env[SOCKET_VARIABLE] ?? ''
  const at = named === '' ? join(transcriptsDir(), 'host') : named
  if (named !== '') await ensurePrivateDir(join(named, '..'))
  return new DataDirLock({ lock: `${at}.lock`, pid: `${at}.pid`, apiSocket: null, what: 'its lock is held', holder: 'console' })
}

const lockStartable = (lock: DataDirLock): Startable => ({
  start: async () =>
    lock.start().catch((error: unknown) => {
      // With a cause, the file system does not support locks.
      if (!isAppError(error, 'conflict') || error.cause !== undefined) throw error
      throw new AppError('conflict', `another host of this user is running; to watch it: rexec --attach (${error.message})`, {
        cause: error,
      })
    }),
  stop: async () => lock.stop(),
})

/** Applies mode changes typed at the console, through the approval service of the data directory. */
const modeSetter = (env: Environment, console: string) => {
  const paths = pathsIn(dataDirOf(instanceChoice({ name: null, dataDir: null }, env)))
  return async (whoami: string, line: string): Promise<string> => setModes(paths, consoleSession(console, whoami), line)
}

/** Composes the host of one user: engine, policy, server, transcript and screen. */
export const startHost = async (env: Environment, options: HostOptions, log: Logger): Promise<RunningHost> => {
  const uid = process.geteuid?.() ?? 0
  await makeTranscriptsDir(transcriptsDir())
  const own = options.addPath ? withOwnPrograms(env) : env
  const parts: StartableEntry[] = []
  let transcript: TranscriptWriter | null = null
  const begun = Promise.withResolvers<TranscriptWriter | null>()
  const begin = async (name: string, startable: Startable, deadlineMs?: number): Promise<void> => {
    const part = { name, startable, ...(deadlineMs === undefined ? {} : { deadlineMs }) }
    await startAll([part])
    parts.push(part)
  }
  try {
    await begin('lock', lockStartable(await lockOf(env)))
    let say = (text: string): void => log.warn(text)
    const { recordEnv } = options
    const init = { directory: transcriptsDir(), recordEnv, say: (text: string) => say(text) }
    await begin('transcript', { stop: async () => transcript?.close() })
    const policy = consolePolicy(own)
    const sha256 = createHash('sha256').update(policy.source).digest('hex')
    const audit_path = join(transcriptsDir(), 'audit.log')
    const loaded = options.config === null ? null : await loadTools(options.config)
    for (const one of loaded?.warnings ?? []) log.warn(one)
    const id = `c_${randomBytes(16).toString('base64url')}`
    const engine = {
      policy,
      audit_path,
      sha256: loaded?.sha256 ?? sha256,
      name: 'x0x console',
      console: id,
      ...(loaded && { tools: loaded.tools }),
    }
    const running = await startLocalExecutor(engine, env, log)
    await begin('executor', { stop: async () => void (await running.stop()) }, END_MS)
    const host = new ConsoleHost({
      executor: running.executor,
      clock: systemClock,
      transcript: begun.promise,
      ...(loaded && { setModes: modeSetter(env, id) }),
    })
    const screen = options.screen(host)
    host.show(screen)
    say = (text) => screen.record(text)
    await begin('screen', { stop: async () => screen.close() })
    const listeners = new ConsoleListeners({ service: host, clock: systemClock }, { uid })
    await begin('listeners', { stop: async () => listeners.close() })
    await begin('commands', { stop: async () => host.end() }, END_MS)
    const { paths: sockets, taken } = await listeners.start(consoleSockets(env, uid))
    const warning = taken === null ? null : onlyOwn(taken)
    if (warning !== null) screen.record(warning)
    // The transcript starts last, so that a failed start leaves no empty one.
    transcript = await TranscriptWriter.start({ clock: systemClock }, init)
    begun.resolve(transcript)
    return { sockets, warning, transcript: transcript.path, stopped: host.stopped, stop: async () => stopAll(parts) }
  } catch (error) {
    begun.resolve(null)
    await stopAll(parts)
    throw error
  }
}
