import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import {
  EXEC_DETACH_REQUEST_DOMAIN,
  EXEC_DETACHED_ASK_DOMAIN,
  execDetachedAsk,
  execDetachRequest,
} from '../../../src/protocol/wire/detached.ts'
import {
  LEAST_ATTACHED_PER_AGENT,
  MAX_ATTACHED,
  MAX_ATTACHED_PER_AGENT,
  MAX_ATTACHED_PER_RUN,
} from '../../../src/protocol/limits/detached.ts'
import { execExit, execFrame, type ExecFrame } from '../../../src/protocol/wire/exec.ts'
import { DETACH_KEYS } from '../../support/detached.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { newParty, type FakeLink } from '../../support/fake-network.ts'
import { soon } from '../../support/local-engine.ts'

type Answer = { readonly frames: ExecFrame[]; readonly closed: Promise<void>; leave(): void }

/** A listed agent that renews each lease but acknowledges no output. */
class PausingAgent {
  readonly #t: TestContext
  readonly #link: FakeLink

  constructor(t: TestContext, link: FakeLink) {
    this.#t = t
    this.#link = link
  }

  async start(argv: readonly string[]): Promise<string> {
    const request = { ...(await this.#parties()), request_id: randomUUID(), argv: [...argv], cwd: null, clamp: false }
    const body = execDetachRequest.encode({ ...request, lifetime_ms: null, keep_bytes: 1_000 })
    const signature = await this.#link.peer.signer.sign(EXEC_DETACH_REQUEST_DOMAIN, body)
    const { frames, closed } = this.#open(request, { type: 'detach_request', body, signature })
    await closed
    assert.deepEqual(
      frames.map((frame) => ('state' in frame ? frame.state : frame.type)),
      ['running'],
    )
    return request.request_id
  }

  /** Resolves once the stream is attached, refused or at the end of the run. */
  async attach(request_id: string, from = 0): Promise<Answer & { readonly isAttached: boolean }> {
    const answer = await this.#ask({ request_id, ask: 'attach', from })
    await soon(() => answer.frames.length > 0)
    return { ...answer, isAttached: answer.frames[0]?.type === 'detached' }
  }

  async stateOf(request_id: string): Promise<string | undefined> {
    const { frames, closed } = await this.#ask({ request_id, ask: 'state', from: 0 })
    await closed
    const [frame] = frames
    return frame?.type === 'detached' ? frame.state : undefined
  }

  async #ask({ request_id, ask, from }: { request_id: string; ask: 'attach' | 'state'; from: number }): Promise<Answer> {
    const asked = { ...(await this.#parties()), request_id, ask, from }
    const body = execDetachedAsk.encode(asked)
    const signature = await this.#link.peer.signer.sign(EXEC_DETACHED_ASK_DOMAIN, body)
    return this.#open(asked, { type: 'detached_ask', body, signature })
  }

  async #parties() {
    const { peer, client } = this.#link
    const { agentId: to_agent, machineId: to_machine } = client.identity
    const from = { from_agent: peer.signer.agentId, from_machine: peer.machine.machineId }
    return { version: 1 as const, ...from, to_agent, to_machine, stream_nonce: await this.#link.nonce(), created_at_ms: 0 }
  }

  #open({ request_id, stream_nonce }: { request_id: string; stream_nonce: Uint8Array }, frame: ExecFrame): Answer {
    const port = this.#link.client.openRun(this.#link.number, stream_nonce, execFrame.encode(frame))
    const frames: ExecFrame[] = []
    const { promise: closed, resolve } = Promise.withResolvers<void>()
    const renewal = setInterval(() => port.send(execFrame.encode({ type: 'lease_renew', request_id })), 1_000)
    this.#t.after(() => clearInterval(renewal))
    port.onFrame = (bytes) => frames.push(execFrame.decode(bytes))
    port.onClosed = () => {
      clearInterval(renewal)
      resolve()
    }
    return { frames, closed, leave: () => port.over() }
  }
}

const reasonOf = (frame: ExecFrame | undefined): string | null =>
  frame?.type === 'exit' ? execExit.decode(frame.body).denial_reason : null

test('an agent can attach to its runs even if other listed agents hold all places', { timeout: 120_000 }, async (t) => {
  const [late, ...hostile] = Array.from({ length: 1 + MAX_ATTACHED / LEAST_ATTACHED_PER_AGENT }, newParty)
  const host = await ExecutorHost.start(t, {
    scripts: { waits: 'echo hi; exec sleep 600', quick: 'echo out; exit 7' },
    peers: [late!, ...hostile],
    entryKeys: DETACH_KEYS,
    keys: 'max_concurrent_total = 200\nmax_concurrent_per_agent = 8',
  })
  for (const peer of host.peers) await host.befriend(peer)
  const network = await host.connect()
  const attacks = hostile.map(async (peer) => {
    const agent = new PausingAgent(t, await network.link(peer))
    let attached = 0
    for (let run = 0; run < MAX_ATTACHED_PER_AGENT / MAX_ATTACHED_PER_RUN + 1; run += 1) {
      const id = await agent.start([host.program('waits')])
      for (let n = 0; n <= MAX_ATTACHED_PER_RUN; n += 1) if ((await agent.attach(id)).isAttached) attached += 1
    }
    return attached
  })
  const held = await Promise.all(attacks)
  const total = held.reduce((sum, one) => sum + one, 0)
  assert.ok(total >= MAX_ATTACHED, `${total} places are held`)
  assert.ok(Math.min(...held) >= LEAST_ATTACHED_PER_AGENT && Math.max(...held) <= MAX_ATTACHED_PER_AGENT, held.join())

  const agent = new PausingAgent(t, await network.link(late!))
  const waits = await agent.start([host.program('waits')])
  for (let n = 0; n < LEAST_ATTACHED_PER_AGENT; n += 1) assert.equal((await agent.attach(waits)).isAttached, true)
  const refused = await agent.attach(waits)
  assert.equal(reasonOf(refused.frames[0]), 'concurrency_limit_reached')
  // An attach at the end of an ended run takes no place, so it works without a free one.
  const quick = await agent.start([host.program('quick')])
  assert.ok(await soon(async () => (await agent.stateOf(quick)) === 'ended'))
  const fromStart = await agent.attach(quick)
  assert.equal(reasonOf(fromStart.frames[0]), 'concurrency_limit_reached')
  const end = await agent.attach(quick, Buffer.byteLength('out\n'))
  await end.closed
  const exit = end.frames.at(-1)
  assert.equal(exit?.type === 'exit' && execExit.decode(exit.body).code, 7)
})
