import assert from 'node:assert/strict'
import { setImmediate } from 'node:timers/promises'
import { test } from 'node:test'

import { AppError } from '../../src/base/errors.ts'
import { ExecutorSessions } from '../../src/doors/executor-sessions.ts'
import type { SessionOpening } from '../../src/executor-api/local.ts'

/** Sessions on an executor that names each session after its target, and refuses the target `refused`. */
const sessionsWith = (maxIdle: number) => {
  const open: string[] = []
  let opened = 0
  const executor = {
    open: async ({ target }: SessionOpening) => {
      opened += 1
      if (target === 'refused') throw new AppError('forbidden_path', 'no')
      const session = `${target ?? 'here'} ${opened}`
      open.push(session)
      return { session, grant: { limits: { max_processes_per_session: 1 } } as never }
    },
    close: async (session: string) => {
      open.splice(open.indexOf(session), 1)
      return 0
    },
  }
  const opening = (target: string | null) => ({ door: 'mcp' as const, client_name: 'a test', available: [], target })
  const sessions = new ExecutorSessions({ executor }, { opening, maxIdle })
  const use = async (target: string | null): Promise<string> => sessions.use(target, async ({ id }) => id)
  return { sessions, use, open }
}

test('one session serves all users of a target, and the oldest idle ones are closed, except the local one', async () => {
  const { sessions, use, open } = sessionsWith(2)
  const { promise, resolve } = Promise.withResolvers<void>()
  const used = sessions.use('a', async () => promise)
  assert.deepEqual(await Promise.all([use(null), use(null), use('b')]), ['here 2', 'here 2', 'b 3'])
  for (const target of ['c', 'b', 'd', 'e']) await use(target)
  await setImmediate()
  assert.deepEqual(open, ['a 1', 'here 2', 'd 5', 'e 6'])
  resolve()
  await used
  await setImmediate()
  // The session of `a` is the oldest idle one.
  assert.deepEqual(open, ['here 2', 'd 5', 'e 6'])
  assert.equal(await use('b'), 'b 7')
  await setImmediate()
  assert.deepEqual(open, ['here 2', 'e 6', 'b 7'])
})

test('a refused session is requested again, and close ends all sessions', async () => {
  const { sessions, use, open } = sessionsWith(2)
  for (let at = 0; at < 2; at++) {
    await assert.rejects(use('refused'), { code: 'forbidden_path' })
    await setImmediate()
  }
  assert.equal(await use(null), 'here 3')
  await use('a')
  await sessions.close()
  assert.deepEqual(open, [])
})
