import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { readFile, rename, writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import fc from 'fast-check'

import { newLife, Nonces, MAX_PAIRS_WITH_VOID_NONCES } from '../../../src/executor/links/nonces.ts'
import type { ExecRequest } from '../../../src/protocol/wire/exec.ts'
import { MAX_NONCES_PER_PEER } from '../../../src/protocol/limits/wire.ts'
import { RESTART_WAIT_MS } from '../../../src/protocol/limits/daemon.ts'
import { ExecutorHost } from '../../support/executor-host.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { newParty, signedFrame, type FakeLink, type ProbeRun } from '../../support/fake-network.ts'

/** A signed Request that was not delivered. */
interface Copy {
  readonly nonce: Uint8Array
  readonly request: ExecRequest
  readonly frame: Uint8Array
}

/** After this time, the audit log covers the minute before a start. */
const OLD_LOG_MS = 61_000
const NOWHERE = { stdout: 0, stderr: 0 }

const copyOf = async (host: ExecutorHost, link: FakeLink, id: string = randomUUID()): Promise<Copy> => {
  const nonce = await link.nonce()
  const request = link.request(nonce, [host.program('hello')], { request_id: id })
  return { nonce, request, frame: await signedFrame(request, link.peer.signer) }
}

const deliver = (link: FakeLink, { nonce, request, frame }: Copy): ProbeRun => link.open(nonce, frame, request)

const resume = async (link: FakeLink, { request }: Copy): Promise<ProbeRun> =>
  link.resume({ id: request.request_id, request, position: NOWHERE })

/** Returns the `unseen` flag of the answer to a Resume of an unknown run, or null without an answer. */
const unseen = async (run: ProbeRun): Promise<boolean | null> => {
  await run.closed
  const [first] = run.frames
  return first?.type === 'gone' ? first.unseen : null
}

test('a Request that never arrived is reported as unseen, and is refused from then on', async (t) => {
  const { host, link } = await ExecutorHost.linked(t)
  const first = await copyOf(host, link)
  assert.equal(await unseen(await resume(link, first)), true)
  assert.equal(await unseen(await resume(link, first)), true)
  // The copy that was delayed in transit.
  assert.equal(await deliver(link, first).denial(), 'unverified_sender')
  const again = deliver(link, await copyOf(host, link, first.request.request_id))
  assert.equal((await again.exit()).code, 0)
  assert.deepEqual(await host.events(first.request.request_id), ['denial', 'request', 'started', 'exit'])
})

test('a Request is also unseen if its stream or its whole connection is gone', async (t) => {
  const { host, network, link } = await ExecutorHost.linked(t)
  const [dropped, lost] = [await copyOf(host, link), await copyOf(host, link)]
  network.client.dropNonces(link.number, [dropped.nonce])
  assert.equal(await unseen(await resume(link, dropped)), true)
  network.client.linkClosed(link.number)
  const later = await network.link(host.peer)
  assert.equal(await unseen(await resume(later, lost)), true)
  const again = deliver(later, await copyOf(host, later, lost.request.request_id))
  assert.equal((await again.exit()).code, 0)
})

test('a Request is not reported as unseen if it was accepted or denied, or its nonce was never issued', async (t) => {
  const { host, link } = await ExecutorHost.linked(t)
  const taken = await copyOf(host, link)
  await deliver(link, taken).exit()
  const denied = await copyOf(host, link)
  const other = { ...denied, frame: await signedFrame({ ...denied.request, argv: ['never'] }, link.peer.signer) }
  await deliver(link, other).closed
  const invented = await copyOf(host, link)
  invented.request.stream_nonce.fill(7, 8)
  for (const copy of [taken, denied, invented]) assert.equal(await unseen(await resume(link, copy)), false)
  // The ID was used, even if the Resume names another nonce.
  const renamed = { ...taken, request: { ...taken.request, stream_nonce: await link.nonce() } }
  assert.equal(await unseen(await resume(link, renamed)), false)
})

test('after a restart, a Request that is not in the audit log is unseen and runs once when resent', async (t) => {
  const clock = new ManualClock(Date.now())
  const { host, network, link } = await ExecutorHost.linked(t, { clock })
  await clock.advance(OLD_LOG_MS)
  const [lost, taken] = [await copyOf(host, link), await copyOf(host, link)]
  await deliver(link, taken).exit()
  network.client.stop()
  await host.stop()
  await host.boot()
  const next = await (await host.connect()).link(host.peer)
  assert.equal(await unseen(await resume(next, taken)), false)
  assert.equal(await unseen(await resume(next, lost)), true)
  assert.equal(await deliver(next, lost).denial(), 'unverified_sender', 'the nonce is not valid any more')
  const again = await copyOf(host, next, lost.request.request_id)
  assert.equal((await deliver(next, again).exit()).code, 0)
  assert.equal(await unseen(await resume(next, lost)), false)
  assert.equal(await deliver(next, await copyOf(host, next, lost.request.request_id)).denial(), 'request_id_used')
  assert.equal(await deliver(next, await copyOf(host, next, taken.request.request_id)).denial(), 'request_id_used')
})

test('a Request is not reported as unseen if the audit log is short or the start long ago', async (t) => {
  const clock = new ManualClock(Date.now())
  const { host, network, link } = await ExecutorHost.linked(t, { clock })
  await clock.advance(OLD_LOG_MS)
  const lost = await copyOf(host, link)
  network.client.stop()
  await host.stop()
  await host.boot()
  const next = await (await host.connect()).link(host.peer)
  assert.equal(await unseen(await resume(next, lost)), true)
  await clock.advance(RESTART_WAIT_MS)
  assert.equal(await unseen(await resume(next, lost)), false)

  await host.stop()
  // Keeps only the last line.
  const lines = (await readFile(host.journalPath, 'utf8')).split('\n')
  await writeFile(host.journalPath, lines.slice(-2).join('\n'))
  await host.boot()
  const last = await (await host.connect()).link(host.peer)
  assert.equal(await unseen(await resume(last, lost)), false)
})

test('a new audit log proves no Request unseen, because the earlier daemon may have had another one', async (t) => {
  const clock = new ManualClock(Date.now())
  const { host, network, link } = await ExecutorHost.linked(t, { clock })
  await clock.advance(OLD_LOG_MS)
  const ran = await copyOf(host, link)
  assert.equal((await deliver(link, ran).exit()).code, 0)
  network.client.stop()
  await host.stop()
  await rename(host.journalPath, `${host.journalPath}.elsewhere`)
  await host.boot()
  const next = await (await host.connect()).link(host.peer)
  assert.equal(await unseen(await resume(next, ran)), false)
})

test('a reused audit log proves no Request unseen, because another log has the runs in between', async (t) => {
  const clock = new ManualClock(Date.now())
  const { host, network } = await ExecutorHost.linked(t, { clock })
  await clock.advance(OLD_LOG_MS)
  const acl = await readFile(host.aclPath, 'utf8')
  const restartWith = async (text: string): Promise<FakeLink> => {
    await host.stop()
    await writeFile(host.aclPath, text, { mode: 0o600 })
    await host.boot()
    return (await host.connect()).link(host.peer)
  }
  network.client.stop()
  const other = await restartWith(acl.replace('exec.log', 'other.log'))
  const ran = await copyOf(host, other)
  assert.equal((await deliver(other, ran).exit()).code, 0)
  const back = await restartWith(acl)
  assert.equal(await unseen(await resume(back, ran)), false)
  // From the next start on, it covers all runs again.
  const lost = await copyOf(host, back)
  assert.equal(await unseen(await resume(await restartWith(acl), lost)), true)
})

test('an unlisted peer gets no answer, and another pair learns nothing about nonces of a pair', async (t) => {
  const [peer, friend] = [newParty(), newParty()]
  const host = await ExecutorHost.start(t, { peers: [peer, friend] })
  await host.befriend(peer)
  await host.befriend(friend)
  const network = await host.connect()
  const [link, theirs, unlistedPeers] = [await network.link(peer), await network.link(friend), await network.link(newParty())]
  const copy = await copyOf(host, link)
  assert.equal(await unseen(await resume(theirs, copy)), false)
  assert.equal(await unseen(await resume(unlistedPeers, copy)), null)
  const own = await copyOf(host, unlistedPeers)
  assert.equal(await unseen(await resume(unlistedPeers, own)), null)
  assert.equal((await deliver(link, copy).exit()).code, 0)
})

test('an ID runs at most once, and exactly once if the copy was resent after unseen', async (t) => {
  const { host, network, link: firstLink } = await ExecutorHost.linked(t)
  const step = fc.constantFrom('first', 'resume', 'again', 'drop', 'relink')
  let link = firstLink
  const play = async (steps: readonly string[]): Promise<void> => {
    const first = await copyOf(host, link)
    const id = first.request.request_id
    const firstLinkNumber = link.number
    const runs: ProbeRun[] = []
    let promised = false
    let again: ProbeRun | null = null
    for (const what of steps) {
      if (what === 'first') runs.push(deliver(link, first))
      else if (what === 'drop' && link.number === firstLinkNumber) network.client.dropNonces(link.number, [first.nonce])
      else if (what === 'relink') {
        network.client.linkClosed(link.number)
        link = await network.link(host.peer)
      } else if (what === 'again' && promised && again === null) runs.push((again = deliver(link, await copyOf(host, link, id))))
      else if (what === 'resume' && again === null) {
        const answer = await resume(link, first)
        await Promise.race([answer.closed, answer.frame('resumed')])
        runs.push(answer)
        promised ||= answer.frames.some((frame) => frame.type === 'gone' && frame.unseen)
      }
    }
    await Promise.all(runs.map(async ({ closed }) => closed))
    const started = (await host.events(id)).filter((event) => event === 'started').length
    assert.ok(started <= 1)
    if (again !== null) assert.deepEqual([started, (await again.exit()).code], [1, 0])
    else if (promised) assert.equal(started, 0)
  }
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 8 }), play), {
    numRuns: 60,
    examples: [[['first', 'resume', 'again']], [['resume', 'first', 'again', 'first']], [['relink', 'resume', 'again', 'first']]],
  })
})

test('void nonces are remembered within limits, for the newest pairs and the newest nonces of each', () => {
  const nonces = new Nonces({ life: newLife() })
  const [oldest] = nonces.mint('pair 0', 1)
  assert.equal(nonces.void('pair 0', oldest!), true)
  const many = Array.from({ length: 2 }, () => nonces.mint('pair 1', MAX_NONCES_PER_PEER)).flat()
  for (const nonce of many) nonces.void('pair 1', nonce)
  assert.deepEqual([nonces.void('pair 1', many.at(-1)!), nonces.void('pair 1', many[0]!)], [true, false])
  for (let count = 2; count <= MAX_PAIRS_WITH_VOID_NONCES; count++) {
    nonces.mint(`pair ${count}`, 1)
    nonces.forget(`pair ${count}`, true)
  }
  assert.deepEqual([nonces.void('pair 0', oldest!), nonces.void('pair 1', many.at(-1)!)], [false, true])
  const [unlistedPeers] = nonces.mint('stranger', 1)
  nonces.forget('stranger', false)
  assert.equal(nonces.void('stranger', unlistedPeers!), false)
})
