import assert from 'node:assert/strict'
import { duplexPair } from 'node:stream'
import { test } from 'node:test'

import { silentLogger } from '../../src/base/log.ts'
import { ExecutorClient } from '../../src/executor-api/client.ts'
import { ExecutorChannel } from '../../src/executor-api/channel.ts'
import { toExecutor, toNetwork, type ToExecutor, type ToNetwork } from '../../src/executor-api/messages.ts'

/** A client of the executor API, and the messages that it sends to a simulated executor process. */
const portPair = () => {
  const [ours, theirs] = duplexPair()
  const client = new ExecutorClient({ duplex: ours, log: silentLogger })
  const calls: ToExecutor[] = []
  const both = Promise.withResolvers<void>()
  const executor: ExecutorChannel<ToExecutor, ToNetwork> = new ExecutorChannel(
    { duplex: theirs, incoming: toExecutor, outgoing: toNetwork },
    {
      onMessage: (message) => {
        if (calls.push(message) === 2) both.resolve()
      },
      onMalformed: (_payload, error) => assert.fail(String(error)),
      onClosed: () => undefined,
      holdWhenBehind: false,
    },
  )
  return { client, executor, calls, twoCame: both.promise }
}

const idOf = (message: ToExecutor | undefined): number => (message as { readonly id: number }).id

test('a wrong reply type or unknown error code becomes internal, and a close rejects pending calls', async (t) => {
  const { client, executor, calls, twoCame } = portPair()
  t.after(() => client.stop())
  const [settings, nonces, waiting] = [
    client.settings(),
    client.mintNonces(1, 1),
    client.fanoutOver('00000000-0000-4000-8000-000000000000'),
  ]
  await twoCame
  executor.send({ type: 'result', id: idOf(calls[0]), json: '{}' })
  executor.send({ type: 'failed', id: idOf(calls[1]), code: 'toString', message: 'x', data: '{}' })
  await assert.rejects(settings, { code: 'internal', message: 'the executor answered result instead of settings' })
  await assert.rejects(nonces, { code: 'internal', message: 'x' })
  executor.close()
  await assert.rejects(waiting, { code: 'shutting_down' })
  await assert.rejects(client.settings(), { code: 'shutting_down' })
})
