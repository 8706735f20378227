import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'

import { connect, type ConnectOptions, type OpenOptions, type RexdClient } from '../../src/sdk/client.ts'
import { RexdDisconnected } from '../../src/sdk/errors.ts'
import type { RexdSession } from '../../src/sdk/session.ts'
import { webSocket, type WebSocketOptions } from '../../src/sdk/web-socket.ts'
import { CuttableProxy } from '../support/cuttable-proxy.ts'
import { startRexd, type RexdServer, type RexdSettings } from '../support/rexd-server.ts'

/** Checks for a lost connection with this reason. `sent` says whether the server may have received the request. */
export const lost =
  (sent: boolean, text: RegExp) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof RexdDisconnected, String(error))
    assert.match(error.message, text)
    assert.equal(error.sent, sent)
    return true
  }

/** A client that the end of the test closes. */
export const connectedTo = async (t: TestContext, options: WebSocketOptions, others: Partial<ConnectOptions> = {}): Promise<RexdClient> => {
  const client = await connect({ transport: webSocket(options), ...others })
  t.after(async () => client.close())
  return client
}

export interface Proxied {
  readonly server: RexdServer
  /** The proxy between client and server. */
  readonly proxy: CuttableProxy
  /** The URL of the proxy. */
  readonly url: string
}

/** A real rexd behind a proxy that can cut the connection. Its successor has the same URL. */
export const proxied = async (t: TestContext, settings: RexdSettings = {}): Promise<Proxied> => {
  let port = 0
  const proxy = await new CuttableProxy(() => port).listen()
  t.after(async () => proxy.close())
  const server = await startRexd(t, { ...settings, server: `allowed_hosts = ["127.0.0.1:${proxy.port}"]` })
  port = server.port
  return { server, proxy, url: `http://127.0.0.1:${proxy.port}` }
}

export interface Resumable extends Proxied {
  readonly client: RexdClient
  readonly session: RexdSession
}

/** A session that survives its connections. */
export const resumable = async (
  t: TestContext,
  options: RexdSettings & { readonly connect?: Partial<ConnectOptions>; readonly open?: Partial<OpenOptions> } = {},
): Promise<Resumable> => {
  const { connect: others, open, ...settings } = options
  const way = await proxied(t, settings)
  const reconnect = { firstDelayMs: 20, maxDelayMs: 200, attempts: 20 }
  const client = await connectedTo(t, { url: way.url, token: way.server.token }, { reconnect, ...others })
  const session = await client.open({ clientName: 'test', resumable: true, ...open })
  return { ...way, client, session }
}
