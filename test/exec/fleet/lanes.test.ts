import assert from 'node:assert/strict'
import { test } from 'node:test'

import { ExecClient } from '../../../src/exec/client.ts'
import { RequesterCounters } from '../../../src/exec/counters.ts'
import { RESUME_PAUSE_MS } from '../../../src/exec/resumable-transport.ts'
import type { RunSpec } from '../../../src/exec/run-spec.ts'
import { newRequestId } from '../../../src/identity/request-id.ts'
import { execRequest } from '../../../src/protocol/wire/exec.ts'
import { MAX_FANOUT_DIALS, MAX_FANOUT_SIGNING } from '../../../src/protocol/limits/fleet.ts'
import { newParty } from '../../support/fake-network.ts'
import { newLifecycleLog } from '../../support/lifecycle.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { RecordingSink, ScriptedPeer, settle } from '../../support/scripted-peer.ts'
import { fake } from '../../support/fake.ts'

const HOSTS = 3 * MAX_FANOUT_SIGNING
const FANOUT = newRequestId()

/** A step that lasts until the test ends it. */
class Gate {
  inside = 0
  readonly #waiting: (() => void)[] = []

  async pass(): Promise<void> {
    this.inside += 1
    await new Promise<void>((resolve) => this.#waiting.push(resolve))
    this.inside -= 1
  }

  /** Lets all waiting steps continue, and those that follow. */
  async openAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      for (const goOn of this.#waiting.splice(0)) goOn()
      await settle()
    }
  }
}

/** A daemon that sends requests. `asked(true)` belongs to a fan-out, `asked(false)` is a single run. */
const daemon = ({ isLinked }: { isLinked: boolean }) => {
  const requester = newParty()
  const party = newParty()
  const clock = new ManualClock()
  const dials = new Gate()
  const signing = new Gate()
  const peers: ScriptedPeer[] = []
  const again: ScriptedPeer[] = []
  const { signer, machine } = requester
  const links: ConstructorParameters<typeof ExecClient>[0]['links'] = {
    isLinked: () => isLinked,
    openChannel: async () => {
      if (!isLinked) await dials.pass()
      const peer = new ScriptedPeer({ requester, party })
      peers.push(peer)
      return peer
    },
    reopenChannel: async () => {
      const peer = new ScriptedPeer({ requester, party })
      again.push(peer)
      return peer
    },
  }
  const runner = new ExecClient({
    lifecycle: newLifecycleLog(),
    traces: null,
    links,
    executor: fake({
      identity: { agentId: signer.agentId, machineId: machine.machineId, agentPublicKey: signer.publicKey },
      mintNonces: async () => [],
      openRun: () => assert.fail('no run of our own was expected'),
      drained: async () => undefined,
      signRequest: async ({ link: _link, ...fields }) => {
        await signing.pass()
        const [to_agent, to_machine] = [party.signer.agentId, party.machine.machineId]
        const from = { from_agent: signer.agentId, from_machine: machine.machineId }
        const body = execRequest.encode({ version: 1, ...from, to_agent, to_machine, created_at_ms: 0, ...fields })
        return { body, signature: new Uint8Array(3309) }
      },
    }),
    clock,
    counters: new RequesterCounters(),
  })
  const asked = (ofMany: boolean): void => {
    const spec: RunSpec = { agent_id: party.signer.agentId, argv: ['id'], stdin: null, timeout_ms: null, cwd: null, clamp: false }
    const fanout = ofMany ? { fanout: { id: FANOUT, host: 'web1' } } : {}
    runner.run({ ...spec, ...fanout }, new RecordingSink()).catch(() => undefined)
  }
  return { asked, again, clock, dials, peers, signing }
}

test('fan-outs have a limited number of Requests signed at once, and a single run does not wait for them', async () => {
  const { asked, again, clock, peers, signing } = daemon({ isLinked: true })
  for (let host = 0; host < HOSTS; host++) asked(true)
  await settle()
  assert.equal(signing.inside, MAX_FANOUT_SIGNING)
  asked(false)
  await settle()
  assert.equal(signing.inside, MAX_FANOUT_SIGNING + 1)
  await signing.openAll()
  assert.equal(peers.filter(({ frames }) => frames[0]?.type === 'request').length, HOSTS + 1)

  // All streams are lost before their Requests arrive.
  for (const peer of peers) peer.onClosed(new Error('reset'))
  await clock.advance(RESUME_PAUSE_MS)
  await settle()
  for (const peer of again.splice(0)) {
    const [resume] = peer.frames
    assert.ok(resume?.type === 'resume')
    peer.say({ type: 'gone', request_id: resume.request_id, unseen: true }, resume.request_id)
  }
  await clock.advance(RESUME_PAUSE_MS)
  await settle()
  assert.equal(signing.inside, MAX_FANOUT_SIGNING + 1)
  await signing.openAll()
  assert.equal(again.filter(({ frames }) => frames[0]?.type === 'request').length, HOSTS + 1)
})

test('fan-outs dial a limited number of machines at once, and a single run does not wait for them', async () => {
  const { asked, dials } = daemon({ isLinked: false })
  for (let host = 0; host < HOSTS; host++) asked(true)
  await settle()
  assert.equal(dials.inside, MAX_FANOUT_DIALS)
  asked(false)
  await settle()
  assert.equal(dials.inside, MAX_FANOUT_DIALS + 1)
})
