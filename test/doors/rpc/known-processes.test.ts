import assert from 'node:assert/strict'
import { test } from 'node:test'

import { SessionProcesses, MAX_ENDED_PROCESSES, MAX_ENDED_ARGV } from '../../../src/doors/rpc/sessions.ts'
import type { RpcProcess } from '../../../src/doors/rpc/process.ts'

const processes = (sizes: readonly number[], over = true): RpcProcess[] =>
  sizes.map((argvSize, at) => ({ id: `${over ? 'ended' : 'running'}${at}`, over, argvSize }) as unknown as RpcProcess)

const afterAll = (added: readonly RpcProcess[]): string[] => {
  const known = new SessionProcesses()
  for (const process of added) known.add(process)
  return known.all.map(({ id }) => id)
}

test('a session remembers the last MAX_ENDED_PROCESSES ended processes', () => {
  const ids = afterAll(processes(Array.from({ length: MAX_ENDED_PROCESSES + 2 }, () => 10)))
  assert.deepEqual([ids.length, ids[0]], [MAX_ENDED_PROCESSES, 'ended2'])
})

test('the arguments of remembered processes fit into one answer, and the oldest ended ones are dropped', () => {
  const half = MAX_ENDED_ARGV / 2
  assert.deepEqual(afterAll(processes([half, half])), ['ended0', 'ended1'])
  assert.deepEqual(afterAll(processes([half, half, 1])), ['ended1', 'ended2'])
  assert.deepEqual(afterAll([...processes([half], false), ...processes([half, half, 1])]), ['running0', 'ended1', 'ended2'])
})
