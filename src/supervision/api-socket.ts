import { renameSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { type Server, createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { AppError } from '../base/errors.ts'
import { listenPrivately } from '../base/private-socket.ts'
import { claimSocketPath } from '../base/unix-socket.ts'

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
  giveUp(): void {
    this.#server.close()
  }
}
