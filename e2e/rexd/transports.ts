import type { TestContext } from 'node:test'

import { HttpWire } from './http-wire.ts'
import { Peer } from './peer.ts'
import type { TransportName } from './requirement.ts'
import { startRexd, startWebRexd, type ConfigOptions } from './server.ts'
import { StdioWire } from './stdio-wire.ts'
import { WebSocketWire } from './websocket-wire.ts'

/** One way to connect to a server. The requirements run over each. */
export interface Transport {
  readonly name: TransportName
  open(t: Pick<TestContext, 'after'>, config?: ConfigOptions, env?: Readonly<Record<string, string>>): Promise<Peer>
}

export const overStdio: Transport = {
  name: 'stdio',
  open: async (t, config, env) => new Peer(new StdioWire(await startRexd(t, config, env))),
}

export const overHttp: Transport = {
  name: 'http',
  open: async (t, config, env) => new Peer(new HttpWire(await startWebRexd(t, config, env))),
}

export const overWebSocket: Transport = {
  name: 'websocket',
  open: async (t, config, env) => new Peer(await WebSocketWire.connect(await startWebRexd(t, config, env))),
}

export const TRANSPORTS: readonly Transport[] = [overStdio, overHttp, overWebSocket]
