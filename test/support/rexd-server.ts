import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, type TestContext } from 'node:test'

import { wholeLines } from './journal.ts'
import { isAlive, until } from './processes.ts'
import { rexdCommand } from './rexd-command.ts'

/** Ending all children takes at most 8 s. The rest takes a little longer. */
const MAX_STOP_MS = 12_000

/** Lines of TOML for each section, added to the minimum that it needs to start. */
export interface RexdSettings {
  readonly server?: string
  readonly limits?: string
  readonly security?: string
  /** The listen address, quoted as in TOML. */
  readonly listen?: string
}

export interface RexdOptions {
  readonly flags?: readonly string[]
  readonly stdin?: 'ignore' | 'pipe'
  /** Added to the environment of this process. */
  readonly env?: Readonly<Record<string, string>>
}

/** A configuration in a temporary directory, with one root. */
export interface RexdPlace {
  readonly dir: string
  readonly root: string
  readonly config: string
  readonly tokenFile: string
  /** Runs before the directory is removed, newest first. */
  readonly ending: (() => Promise<void>)[]
}

export const rexdPlace = async (t: Pick<TestContext, 'after'>, settings: RexdSettings = {}): Promise<RexdPlace> => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'x0x-rexd-')))
  const ending: (() => Promise<void>)[] = []
  t.after(async () => {
    try {
      for (const end of ending.toReversed()) await end()
    } finally {
      await rm(dir, { recursive: true, force: true, maxRetries: 10 })
    }
  })
  const [root, config, tokenFile] = [join(dir, 'root'), join(dir, 'config.toml'), join(dir, 'secret', 'token')]
  await mkdir(root)
  const { server = '', limits = '', security = '', listen = '127.0.0.1:0' } = settings
  const quoted = JSON.stringify
  const text = [
    `[server]\nhttp_listen = ${quoted(listen)}\ntoken_file = ${quoted(tokenFile)}\n${server}`,
    `[limits]\nmax_output_bytes = 268435456\n${limits}`,
    `[security]\nallow_shell = true\n${security}`,
    `[[security.allowed_roots]]\npath = ${quoted(root)}`,
    `[audit]\npath = ${quoted(join(dir, 'log', 'audit.log'))}`,
  ].join('\n')
  await writeFile(config, text, { mode: 0o600 })
  return { dir, root, config, tokenFile, ending }
}

/** The refusals of a session in the audit log, each as interface, method and detail. */
export const refusalsOf = async ({ dir }: Pick<RexdPlace, 'dir'>, sessionId: string): Promise<string[]> => {
  const text = await readFile(join(dir, 'log', 'audit.log'), 'utf8')
  const lines = wholeLines(text).map((line) => JSON.parse(line) as Record<string, unknown>)
  const refused = lines.filter(({ event, session_id }) => event === 'refused' && session_id === sessionId)
  return refused.map(({ door, method, detail }) => `${String(door)} ${String(method)}: ${String(detail)}`)
}

export interface RexdServer extends RexdPlace {
  readonly url: string
  /** NaN for a unix socket. */
  readonly port: number
  readonly token: string
  readonly child: ChildProcess
  readonly pid: number
  /** Its line on standard output. */
  readonly ready: string
  /** All its output on standard error. */
  said(): string
  /** Sends a signal. Returns the exit status and signal when the process has ended. */
  stop(signal?: NodeJS.Signals): Promise<readonly [number | null, NodeJS.Signals | null]>
}

/** Runs a program to its end, and returns its status and output. */
export const runRexd = async (...argv: readonly string[]): Promise<{ status: number | null; stdout: string; stderr: string }> => {
  const [file, ...words] = rexdCommand()
  const child = spawn(file, [...words, ...argv], { stdio: ['ignore', 'pipe', 'pipe'] })
  const said = { stdout: '', stderr: '' }
  for (const name of ['stdout', 'stderr'] as const) child[name].on('data', (part: Buffer) => (said[name] += part.toString()))
  await once(child, 'close')
  return { status: child.exitCode, ...said }
}

const READY = /^rexd \S+ ready: (https?:\/\/(?:\[[^\]]+\]|[^:]+):(\d+)|unix:[^,]+), token in (.+), configuration .+\n/

/** The built rexd on a separate port. The test ends it, and fails if it has logged an internal error. */
export const startRexd = async (
  t: Pick<TestContext, 'after'>,
  settings: RexdSettings = {},
  made?: RexdPlace,
  { flags = [], stdin = 'ignore', env = {} }: RexdOptions = {},
): Promise<RexdServer> => {
  const place = made ?? (await rexdPlace(t, settings))
  const [file, ...words] = rexdCommand()
  const child = spawn(file, [...words, '--http', ...flags, '--config', place.config], {
    stdio: [stdin, 'pipe', 'pipe'],
    env: { ...process.env, ...env },
  })
  let [ready, said] = ['', '']
  child.stderr!.on('data', (part: Buffer) => (said += part.toString()))
  child.stdout!.on('data', (part: Buffer) => (ready += part.toString()))
  const closed = once(child, 'close')
  const stop: RexdServer['stop'] = async (signal = 'SIGTERM') => {
    child.kill(signal)
    await closed
    return [child.exitCode, child.signalCode]
  }
  place.ending.push(async () => {
    let patient = true
    const late = setTimeout(() => {
      patient = false
      child.kill('SIGKILL')
    }, MAX_STOP_MS)
    await stop()
    clearTimeout(late)
    assert.ok(patient, 'it did not end when it was asked to')
    assert.doesNotMatch(said, /"level":"error"/, 'rexd called something a mistake of its own')
  })
  await until(() => READY.test(ready) || child.exitCode !== null)
  const [, url = '', port] = READY.exec(ready) ?? []
  assert.ok(url !== '', `rexd did not start: ${ready}${said}`)
  const token = (await readFile(place.tokenFile, 'latin1')).trim()
  return { ...place, url, port: Number(port), token, child, pid: child.pid!, ready, said: () => said, stop }
}

/** One server for all tests of a file. The first test that needs it starts it. */
export const sharedRexd = (settings: RexdSettings = {}): (() => Promise<RexdServer>) => {
  const cleaners: (() => unknown)[] = []
  let server: Promise<RexdServer> | null = null
  after(async () => {
    for (const clean of cleaners) await clean()
  })
  return async () => (server ??= startRexd({ after: (clean) => void cleaners.push(clean as () => unknown) }, settings))
}

/** The PID that a program of a session has written to a file of the root. */
export const pidIn = async (file: string): Promise<number> => {
  let pid = 0
  await until(async () => (pid = Number(await readFile(file, 'latin1').catch(() => ''))) > 0)
  assert.ok(isAlive(pid), `process ${pid} lives`)
  return pid
}

export const gone = async (...pids: readonly number[]): Promise<void> => until(() => pids.every((pid) => !isAlive(pid)))
