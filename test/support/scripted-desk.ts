import { createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { pathsIn, type DataPaths } from '../../src/clients/paths.ts'
import { DESK_VERSION } from '../../src/protocol/desk/messages.ts'
import { LineSplitter } from '../../src/protocol/lines.ts'
import { tempDir } from './temp-dir.ts'

const OPERATOR_KEY = '8'.repeat(64)

export interface Sealing {
  readonly key?: Uint8Array
  readonly direction?: 'to_desk' | 'from_desk'
  readonly ts?: number
  readonly nonce?: string
}

/** One connection, on which the test can send what a faulty approval service might send. */
export interface DeskConnection {
  readonly socket: Socket
  readonly serverNonce: string
  /** A line with the seal of the approval service. `sealing` changes parts of it. */
  sealed(body: object, sealing?: Sealing): string
  send(body: object, sealing?: Sealing): void
}

type Script = (connection: DeskConnection, body: Record<string, unknown>) => void

/** An approval service that a test scripts. It computes seals from the text of the protocol, without code of `src/`. */
export const scriptedDesk = async (
  t: TestContext,
  script: Script,
  { hello = (nonce: string): string => `${JSON.stringify({ type: 'hello', version: DESK_VERSION, nonce })}\n` } = {},
): Promise<{ readonly dir: string; readonly paths: DataPaths }> => {
  const dir = await tempDir(t)
  await writeFile(join(dir, 'operator.key'), `${OPERATOR_KEY}\n`, { mode: 0o600 })
  const human = createHmac('sha256', Buffer.from(OPERATOR_KEY, 'hex')).update('x0x-desk-human-v1').digest()
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => undefined)
    const serverNonce = randomBytes(32).toString('base64url')
    const sealed = (body: object, sealing: Sealing = {}): string => {
      const { key = human, direction = 'from_desk', ts = Date.now(), nonce = randomBytes(16).toString('base64url') } = sealing
      const text = JSON.stringify(body)
      const head = `x0x-desk-v1\nhuman\n${direction}\n${serverNonce}\n${nonce}\n${ts}\n`
      const mac = createHmac('sha256', key)
        .update(`${head}${createHash('sha256').update(text).digest('hex')}`)
        .digest('hex')
      return `${JSON.stringify({ body: text, nonce, ts, mac })}\n`
    }
    const connection: DeskConnection = { socket, serverNonce, sealed, send: (body, sealing) => void socket.write(sealed(body, sealing)) }
    socket.write(hello(serverNonce))
    const lines = new LineSplitter({ max: 1024 * 1024 })
    socket.on('data', (chunk) => {
      for (const line of lines.push(chunk)) {
        const { body, nonce, ts } = JSON.parse(String(line)) as { body: string; nonce: string; ts: number }
        const parsed = JSON.parse(body) as Record<string, unknown>
        if (sealed(parsed, { direction: 'to_desk', nonce, ts }) !== `${String(line)}\n`)
          throw new Error('a line of the client is not sealed')
        script(connection, parsed)
      }
    })
  })
  const umask = process.umask(0o177)
  server.listen(pathsIn(dir).approvalsSocket)
  process.umask(umask)
  await once(server, 'listening')
  t.after(async () => {
    for (const socket of sockets) socket.destroy()
    server.close()
    await once(server, 'close')
  })
  return { dir, paths: pathsIn(dir) }
}

/** Accepts an approver, and answers later messages with `answer`: a result, or an error with its code. */
export const welcoming =
  (answer: (body: Record<string, unknown>, connection: DeskConnection) => object | null): Script =>
  (connection, body) => {
    if (body['type'] === 'open') return connection.send({ type: 'opened', role: 'human' })
    const result = answer(body, connection)
    if (result !== null)
      connection.send({
        ...('code' in result ? { type: 'error' } : { type: 'result' }),
        id: body['id'],
        ...('code' in result ? result : { result }),
      })
  }
