import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { AppError } from '../../../src/base/errors.ts'
import { askNamed } from '../../../src/doors/rest/agents.ts'

const [OLD, NEW, OTHER] = ['a', 'b', 'c'].map((digit) => digit.repeat(64)) as [string, string, string]
const forever = new AbortController().signal
const isAnother = (met: string): AppError => new AppError('peer_rejected', 'the machine is another agent', { data: { met } })

/** Follows alice to the new key when it was asked for so often. */
const directory = (follows: number) => {
  let asked = 0
  return {
    resolve: (text: string): string => {
      if (text !== 'alice') return text
      asked += 1
      return asked > follows ? NEW : OLD
    },
  }
}

const asking = async (body: { agent?: string; agent_id?: string }, met: string, follows = 3, signal = forever) => {
  const asked: string[] = []
  const ask = async (agentId: string): Promise<string> => {
    asked.push(agentId)
    if (agentId === OLD) throw isAnother(met)
    return 'answered'
  }
  const answer = await askNamed({ directory: directory(follows), clock: systemClock }, body, signal, ask).catch(
    ({ code }: AppError) => code,
  )
  return [answer, asked]
}

test('a first call by name goes to the key that its contact has followed meanwhile', async () => {
  assert.deepEqual(await asking({ agent: 'alice' }, NEW), ['answered', [OLD, NEW]])
})

test('whoever is named by an id is that id, a machine of somebody else is not followed, and another error is told at once', async () => {
  for (const body of [{ agent: OLD }, { agent_id: OLD }, { agent_id: 'alice' }])
    assert.deepEqual(await asking(body, NEW), ['peer_rejected', [OLD]])
  assert.deepEqual(await asking({ agent: 'alice' }, OTHER), ['peer_rejected', [OLD]])
  assert.deepEqual(await asking({ agent: 'alice' }, NEW, Infinity, AbortSignal.abort()), ['peer_rejected', [OLD]])
  let asked = 0
  const fails = async (): Promise<never> => {
    asked += 1
    throw new AppError('peer_unreachable', 'nobody is there')
  }
  await assert.rejects(askNamed({ directory: directory(0), clock: systemClock }, { agent: 'alice' }, forever, fails), {
    code: 'peer_unreachable',
  })
  assert.equal(asked, 1)
})
