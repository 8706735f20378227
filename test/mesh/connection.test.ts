import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Connection } from '@libp2p/interface'
import { multiaddr } from '@multiformats/multiaddr'

import { isAppError } from '../../src/base/errors.ts'
import { MeshConnection } from '../../src/mesh/connection.ts'
import { MAX_STREAMS_PER_CONNECTION } from '../../src/protocol/limits/wire.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../../src/protocol/wire/link.ts'
import { signalOf } from '../support/hostile-link.ts'
import { ManualClock } from '../support/manual-clock.ts'

test('outbound streams of x0x bypass the peer store of libp2p, and are limited per protocol', async () => {
  const streams: object[] = []
  const createStream = async ({ protocol }: { protocol: string }): Promise<object> => {
    const stream = Object.assign(new EventTarget(), { protocol, direction: 'outbound', status: 'open', writeStatus: 'writable' })
    streams.push(stream)
    return stream
  }
  const asked: string[] = []
  const newStream = async (protocol: string): Promise<object> => {
    asked.push(protocol)
    return createStream({ protocol })
  }
  const remoteAddr = multiaddr('/ip4/127.0.0.1/tcp/1')
  const maConn = { status: 'open' }
  const connection = { direction: 'outbound', remoteAddr, streams, maConn, muxer: { createStream }, newStream } as unknown as Connection
  const mesh = new MeshConnection({ connection, clock: new ManualClock() }, { machineId: 'ab'.repeat(32) })
  for (let i = 0; i < MAX_STREAMS_PER_CONNECTION; i++) await mesh.openStream(DM_PROTOCOL, signalOf())
  await assert.rejects(mesh.openStream(DM_PROTOCOL, signalOf()), (error) => isAppError(error, 'rate_limited'))
  assert.equal(streams.length, MAX_STREAMS_PER_CONNECTION)
  await mesh.openStream(LINK_PROTOCOL, signalOf())
  assert.deepEqual(asked, [])
  maConn.status = 'closed'
  await assert.rejects(mesh.openStream(LINK_PROTOCOL, signalOf()), (error) => isAppError(error, 'peer_unreachable'))
  await mesh.openStream('/another/1', signalOf())
  assert.deepEqual(asked, ['/another/1'])
})
