import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { EventStream } from '../../../src/doors/rest/event-stream.ts'
import { StreamedFanout } from '../../../src/doors/rest/fanout-response.ts'
import { OTHER_AGENT } from '../../support/rest-door.ts'
import { settle } from '../../support/scripted-peer.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const HOST = { host: 'web1', agent_id: OTHER_AGENT }

test('a host is told to begin when that has left this process, and others are told of meanwhile', async () => {
  const sent: [type: string, left: (() => void) | undefined][] = []
  const send = (event: { type: string }, left?: () => void): void => void sent.push([event.type, left])
  const sink = new StreamedFanout({ stream: { send } as unknown as EventStream })
  let told = false
  const begun = sink.begun(HOST, ID).then(() => (told = true))
  await sink.event(HOST, { type: 'warning', request_id: ID, kind: 'timeout_clamped', message: '' })
  await settle()
  assert.deepEqual([sent.map(([type]) => type), told], [['begun', 'warning'], false])
  sent[0]![1]!()
  await begun
})
