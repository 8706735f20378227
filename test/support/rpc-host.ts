import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'

import { silentLogger, type Logger } from '../../src/base/log.ts'
import { startLocalExecutor } from '../../src/supervision/local-executor.ts'
import { loadRexdConfig } from '../../src/config/rexd-config.ts'
import { RpcHttpServer } from '../../src/doors/rpc/rpc-http-server.ts'
import type { LocalExecutor } from '../../src/executor-api/local.ts'
import { ManualClock } from './manual-clock.ts'
import type { Reached } from './rexd-callers.ts'
import { rexdPlace, type RexdPlace, type RexdSettings } from './rexd-server.ts'

/** An executor with real programs, and its REXD interfaces with a clock that only the test moves. */
export interface RpcHost extends RexdPlace, Reached {
  readonly clock: ManualClock
  readonly executor: LocalExecutor
  readonly door: RpcHttpServer
}

/** Starts the host in this process. The test stops it. */
export const startRpcHost = async (
  t: Pick<TestContext, 'after'>,
  settings: RexdSettings = {},
  log: Logger = silentLogger,
): Promise<RpcHost> => {
  const place = await rexdPlace(t, settings)
  const { config } = await loadRexdConfig(place.config, {})
  const rexd = await startLocalExecutor(config, {}, silentLogger)
  const { executor } = rexd
  const clock = new ManualClock()
  const token = 'f'.repeat(64)
  const door = new RpcHttpServer(
    { executor, clock, log },
    {
      listen: { kind: 'tcp', host: '127.0.0.1', port: 0 },
      token,
      allowed: { hosts: [], origins: [] },
      tls: null,
      onRefused: rexd.refused,
    },
  )
  place.ending.push(async () => {
    await door.stop()
    assert.deepEqual(await rexd.stop(), [])
  })
  await door.start()
  return { ...place, url: door.url, token, clock, executor, door }
}
