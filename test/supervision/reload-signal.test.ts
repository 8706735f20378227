import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Logger } from '../../src/base/log.ts'
import { ReloadSignal } from '../../src/supervision/reload-signal.ts'
import { ServiceManager } from '../../src/supervision/service-manager.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { silent } from '../support/processes.ts'

test('many signals cause one reload after the other, and the last one begins after the last signal', async (t) => {
  const before = process.listeners('SIGHUP')
  t.after(() => process.listeners('SIGHUP').forEach((one) => before.includes(one) || process.off('SIGHUP', one)))
  const signal = (): boolean => process.emit('SIGHUP', 'SIGHUP')
  const [errors, begun]: [unknown[], PromiseWithResolvers<void>[]] = [[], []]
  let [running, most] = [0, 0]
  const work = async (): Promise<void> => {
    const one = Promise.withResolvers<void>()
    begun.push(one)
    most = Math.max(most, ++running)
    await one.promise.finally(() => (running -= 1))
  }
  const end = async (how: 'resolve' | 'reject'): Promise<void> => {
    if (how === 'resolve') begun.at(-1)?.resolve()
    else begun.at(-1)?.reject(new Error('unreadable'))
    await new Promise((resolve) => setImmediate(resolve))
  }
  const reloads = new ReloadSignal()
  signal()
  assert.equal(begun.length, 0, 'nothing can be read again yet')
  const log = { error: (facts: unknown) => errors.push(facts) } as unknown as Logger
  const manager = new ServiceManager({ clock: new ManualClock(), log: silent }, { fd: null, watchdogMs: null })
  reloads.serve({ log, manager, work })
  assert.equal(begun.length, 1, 'what came before is not lost')
  for (let n = 0; n < 10_000; n++) signal()
  assert.equal(begun.length, 1)
  await end('reject')
  assert.deepEqual([begun.length, errors], [2, [{ err: 'unreadable' }]], 'one for all that came meanwhile, also after a failure')
  await end('resolve')
  assert.equal(begun.length, 2)
  signal()
  assert.equal(begun.length, 3)
  await end('resolve')
  assert.equal(most, 1)
})
