import assert from 'node:assert/strict'
import { test } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { AppError } from '../../../src/base/errors.ts'
import { askNamed } from '../../../src/doors/rest/agents.ts'

const [OLD, NEW, OTHER] = ['a', 'b', 'c'].map((digit) => digit.repeat(64)) as [string, string, string]
const forever = new AbortController().signal
const isAnother = (met: string): AppError => new AppError('peer_rejected', 'the machine is another agent', { data: { met } })

/** Resolves alice to the new key after this many lookups. */
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

test('a request by name is sent again to the new key if the contact has followed it meanwhile', async () => {
  assert.deepEqual(await asking({ agent: 'alice' }, NEW), ['answered', [OLD, NEW]])
})

test('a request by ID, a machine of another agent, an abort and another error cause no second attempt', async () => {
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
