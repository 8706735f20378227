import { renameSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { type Server, createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { AppError } from '../base/errors.ts'
import { claimSocketPath, listenPrivately } from '../base/unix-sockets.ts'

/** Temporary name in the socket's directory. It is shorter than the socket's name, so that its path also fits. */
const DRAFT = 'api.new'

/**
 * The API's unix socket, bound by this process for the network process to listen on. The network process needs no access to its directory,
 * and cannot change where the path leads.
 */
export class HandedSocket {
  /** The listening descriptor, to be inherited. */
  readonly fd: number
  readonly #server: Server
  readonly #path: string
  readonly #draft: string

  private constructor(server: Server, path: string, draft: string) {
    this.#server = server
    this.#path = path
    this.#draft = draft
    // The runtime has no public way to get a server's descriptor, and `spawn` accepts nothing else.
    const { fd } = (server as unknown as { _handle: { fd: number } })._handle
    if (!Number.isInteger(fd) || fd < 0) throw new AppError('internal', 'the socket of the API has no descriptor')
    this.fd = fd
  }

  /** Throws `conflict` if another process uses the path, `bad_config` if the path is too long. */
  static async bind(path: string, mode: number): Promise<HandedSocket> {
    await claimSocketPath(path)
    const draft = join(dirname(path), DRAFT)
    await rm(draft, { force: true })
    const server = createServer()
    await listenPrivately(server, draft, `another program has created ${draft}`, mode)
    return new HandedSocket(server, path, draft)
  }

  /**
   * Gives the socket its path when the network process, which has inherited it, may serve clients. Until then no client knows the path, so
   * this process accepts no connections. `close` would remove the bound name, which the rename has already replaced.
   */
  handOver(): void {
    renameSync(this.#draft, this.#path)
    this.#server.close()
  }

  /** Call this instead of `handOver` if the network process does not serve. */
  abandon(): void {
    this.#server.close()
  }
}

/** First descriptor from systemd, sd_listen_fds(3). */
const LISTEN_FDS_START = 3

/** Name of the socket to systemd in the x0x units (OpenFile=). */
const NOTIFY_NAME = 'x0x-notify'

interface HandedDescriptor {
  readonly fd: number
  readonly name: string
}

/** Descriptors that systemd passed to this process, not to its parent. */
const handedDescriptors = (): HandedDescriptor[] => {
  if (process.env['LISTEN_PID'] !== String(process.pid)) return []
  const names = (process.env['LISTEN_FDNAMES'] ?? '').split(':')
  return Array.from({ length: Number(process.env['LISTEN_FDS']) || 0 }, (_, at) => ({ fd: LISTEN_FDS_START + at, name: names[at] ?? '' }))
}

/** The listening socket, if it is the only one. */
export const activatedSocket = (): number | null => {
  const [socket, ...others] = handedDescriptors().filter(({ name }) => name !== NOTIFY_NAME)
  return socket === undefined || others.length > 0 ? null : socket.fd
}

export const notifySocket = (): number | null => handedDescriptors().find(({ name }) => name === NOTIFY_NAME)?.fd ?? null
