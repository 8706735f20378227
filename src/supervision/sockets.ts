import { renameSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { type Server, createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { AppError } from '../base/errors.ts'
import { claimSocketPath, listenPrivately } from '../base/unix-sockets.ts'

/** Beside the socket and shorter than its name, so that the path fits where the socket's does. */
const DRAFT = 'api.new'

/**
 * The API's unix socket, bound here for the network's half to listen on: it stands in a directory that
 * the other half need not enter, and nobody but us says where its path leads.
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
    // The runtime has no public way to ask a server for its descriptor; `spawn` takes nothing else.
    const { fd } = (server as unknown as { _handle: { fd: number } })._handle
    if (!Number.isInteger(fd) || fd < 0) throw new AppError('internal', 'the socket of the API has no descriptor')
    this.fd = fd
  }

  /** Throws `conflict` where the path is somebody else's, `bad_config` where it is too long. */
  static async bind(path: string, mode: number): Promise<HandedSocket> {
    await claimSocketPath(path)
    const draft = join(dirname(path), DRAFT)
    await rm(draft, { force: true })
    const server = createServer()
    await listenPrivately(server, draft, `${draft} was made by another meanwhile`, mode)
    return new HandedSocket(server, path, draft)
  }

  /**
   * Called in the turn in which the network's half was started: from now on the path is its, and we accept nobody.
   * `close` removes the name that was bound, which the rename has taken away.
   */
  handOver(): void {
    renameSync(this.#draft, this.#path)
    this.#server.close()
  }

  /** The network's half was not started. */
  abandon(): void {
    this.#server.close()
  }
}

/** The first descriptor that systemd hands over, sd_listen_fds(3). */
const LISTEN_FDS_START = 3

/** What our units call the socket to systemd that they have opened for us (OpenFile=). */
const NOTIFY_NAME = 'x0x-notify'

interface HandedDescriptor {
  readonly fd: number
  readonly name: string
}

/** What systemd handed to this very process, and not to one that started us. */
const handedDescriptors = (): HandedDescriptor[] => {
  if (process.env['LISTEN_PID'] !== String(process.pid)) return []
  const names = (process.env['LISTEN_FDNAMES'] ?? '').split(':')
  return Array.from({ length: Number(process.env['LISTEN_FDS']) || 0 }, (_, at) => ({ fd: LISTEN_FDS_START + at, name: names[at] ?? '' }))
}

/** The listening socket, where there is one and no other. */
export const activatedSocket = (): number | null => {
  const [socket, ...others] = handedDescriptors().filter(({ name }) => name !== NOTIFY_NAME)
  return socket === undefined || others.length > 0 ? null : socket.fd
}

/** The socket that leads to systemd itself. */
export const notifySocket = (): number | null => handedDescriptors().find(({ name }) => name === NOTIFY_NAME)?.fd ?? null
