import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { after, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { connect, type ConnectOptions, type OpenOptions, type RexdClient } from '../../src/sdk/client.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import { stdio } from '../../src/sdk/byte-transport.ts'
import type { Transport, TransportEvents, TransportFactory } from '../../src/sdk/transport.ts'
import { tempDir } from '../support/temp-dir.ts'

const BUNDLE = fileURLToPath(new URL('../../dist/rexd.mjs', import.meta.url))

export interface Setting {
  /** Lines of the section `[limits]`. */
  readonly limits?: string
  /** Lines of the section `[security]`. */
  readonly security?: string
}

export interface Place {
  /** The only directory that the server may access. */
  readonly root: string
  /** The command that starts the server. */
  readonly command: readonly string[]
}

/** A root and a configuration for a real `rexd --stdio`. */
export const place = async (t: Pick<TestContext, 'after'>, { limits = '', security = '' }: Setting = {}): Promise<Place> => {
  const directory = await tempDir(t)
  const root = join(directory, 'root')
  const config = join(directory, 'config.toml')
  await mkdir(root)
  const text = `[limits]\n${limits}\n[security]\nallow_shell = true\n${security}\n[[security.allowed_roots]]\npath = ${JSON.stringify(root)}\n[audit]\nenabled = false\n`
  await writeFile(config, text, { mode: 0o600 })
  return { root, command: [process.execPath, BUNDLE, '--stdio', '--config', config] }
}

export interface Connected extends Place {
  readonly client: RexdClient
  readonly session: RexdSession
}

export interface ConnectedOptions extends Setting {
  readonly connect?: Partial<ConnectOptions>
  readonly open?: Partial<OpenOptions>
  /** Wraps the transport of the client. */
  readonly through?: (factory: TransportFactory) => TransportFactory
}

/** A client of a real server, with the server's place. */
interface SharedServer extends Place {
  readonly client: RexdClient
  roots: number
}

const sharedServers = new Map<string, Promise<SharedServer>>()
const cleaners: (() => unknown)[] = []

const closeShared = async (): Promise<void> => {
  for (const server of sharedServers.values()) await (await server).client.close()
  for (const clean of cleaners) await clean()
}
const afterAll = (work: () => Promise<void>): void => after(work)
afterAll(closeShared)

const startShared = async (setting: Setting): Promise<SharedServer> => {
  const where = await place({ after: (clean) => void cleaners.push(clean as () => unknown) }, setting)
  const client = await connect({ transport: stdio({ command: where.command, onStderr: () => undefined }) })
  return { ...where, client, roots: 0 }
}

/** A session on a server with these settings, which all tests of a file share. Each session has its own root. */
const inShared = async (t: TestContext, { open, ...setting }: ConnectedOptions): Promise<Connected> => {
  const key = JSON.stringify(setting)
  const starting = sharedServers.get(key) ?? startShared(setting)
  sharedServers.set(key, starting)
  const server = await starting
  const root = join(server.root, `s${++server.roots}`)
  await mkdir(root)
  const session = await server.client.open({ clientName: 'test', workspaceRoots: [root], ...open })
  t.after(async () => session.close())
  return { root, command: server.command, client: server.client, session }
}

/** A session with a real server. A test with connection options gets its own server. */
export const connected = async (t: TestContext, options: ConnectedOptions = {}): Promise<Connected> => {
  if (options.connect === undefined && options.through === undefined) return inShared(t, options)
  const closing: { client: RexdClient | null } = { client: null }
  // Close the client before the directory is removed.
  t.after(async () => closing.client?.close())
  const where = await place(t, options)
  const factory = stdio({ command: where.command, onStderr: () => undefined })
  const client = await connect({ transport: options.through?.(factory) ?? factory, ...options.connect })
  closing.client = client
  return { ...where, client, session: await client.open({ clientName: 'test', ...options.open }) }
}

/** Writes a program to a file and returns its path. */
export const program = async (root: string, name: string, text: string): Promise<string> => {
  const path = join(root, name)
  await mkdir(dirname(path), { recursive: true })
  await writeFile(path, text)
  await chmod(path, 0o755)
  return path
}

/** Observations of a transport. */
export interface Watched {
  /** Number of characters in all received messages. */
  received: number
  paused: boolean
  /** Resolves at the next pause of reading. */
  nextPause(): Promise<void>
}

/** Wraps a transport and records its activity. */
export const watch = (factory: TransportFactory): { factory: TransportFactory; watched: Watched } => {
  let waiting: (() => void)[] = []
  const watched: Watched = {
    received: 0,
    paused: false,
    nextPause: async () => new Promise((resolve) => waiting.push(resolve)),
  }
  const open = async (events: TransportEvents, signal: AbortSignal): Promise<Transport> => {
    const onMessage = (text: string): void => {
      watched.received += text.length
      events.onMessage(text)
    }
    const transport = await factory.open({ onMessage, onClosed: (error) => events.onClosed(error) }, signal)
    return {
      send: (text) => transport.send(text),
      close: async () => transport.close(),
      pause: () => {
        watched.paused = true
        transport.pause()
        for (const resolve of waiting) resolve()
        waiting = []
      },
      resume: () => {
        watched.paused = false
        transport.resume()
      },
    }
  }
  return { factory: { ...factory, open }, watched }
}
