import assert from 'node:assert/strict'
import { test } from 'node:test'

import type { Connection } from '@libp2p/interface'
import { peerIdFromString } from '@libp2p/peer-id'

import { randomBytes } from '../../src/identity/hash.ts'
import { machineKeyOf } from '../../src/identity/machine-key.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import type { AppError } from '../../src/base/errors.ts'
import { Dialler, type DialFailure } from '../../src/mesh/dialler.ts'
import type { MachineId } from '../../src/protocol/ids.ts'
import { ADDRESS_DIAL_MS, MAX_CONNECTIONS, MAX_PARALLEL_DIALS } from '../../src/protocol/limits/wire.ts'
import { RESUME_OTHER_ADDRESS_MS } from '../../src/links/link-dialler.ts'

interface Dial {
  readonly answer: () => void
}

const machineOf = () => {
  const { machineId } = machineKeyOf(randomBytes(32))
  return { machineId, address: `/ip4/192.0.2.1/tcp/5483/p2p/${peerIdOf(machineId)}` }
}

const nobodyRelays = async (): Promise<Connection> => Promise.reject(new Error('no relay'))
const everybodyIsKnown = { dialRelayed: nobodyRelays, isKnown: () => true, ownAddresses: () => [] }

/** Dials that end when `answer` is called. */
const diallerOf = () => {
  const dials: Dial[] = []
  const dialler = new Dialler({
    ...everybodyIsKnown,
    dial: async (_machine, address) => {
      const { promise, resolve } = Promise.withResolvers<Connection>()
      const remotePeer = peerIdFromString(String(address).split('/p2p/')[1]!)
      dials.push({ answer: () => resolve({ remotePeer } as Connection) })
      return promise
    },
  })
  return { dialler, dials }
}

const turns = async (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

test('a dial that reaches another machine says so instead of repeating the text of the handshake error', async () => {
  const dial = async (): Promise<Connection> =>
    Promise.reject(new Error('Payload identity key a does not match expected remote identity key b'))
  const { machineId, address } = machineOf()
  const dialled = new Dialler({ ...everybodyIsKnown, dial }).dial(machineId, [address], new AbortController().signal)
  await assert.rejects(dialled, /: another machine answers at this address$/)
})

test('an address of this machine itself is not dialled, and is reported as such', async () => {
  const asked: string[] = []
  const dial = async (_machine: MachineId, to: { toString(): string }): Promise<Connection> => {
    asked.push(String(to))
    throw new Error('ECONNREFUSED')
  }
  const own = `/p2p/${peerIdOf(machineOf().machineId)}`
  const ownAddresses = (): string[] =>
    ['/ip4/127.0.0.1/tcp/5483', '/ip6/::1/tcp/5483', '/dns4/x0x.example/tcp/5483'].map((text) => text + own)
  const dialler = new Dialler({ ...everybodyIsKnown, dial, ownAddresses })
  const { machineId } = machineOf()
  const at = (endpoint: string): string => `${endpoint}/p2p/${peerIdOf(machineId)}`
  const refused = ['/ip4/127.0.0.1/tcp/5483', '/ip6/::1/tcp/5483', '/ip6/0:0:0:0:0:0:0:1/tcp/5483'].map(at)
  const dialled = ['/ip4/127.0.0.1/tcp/5484', '/ip4/127.0.0.2/tcp/5483', '/dns4/x0x.example/tcp/5483'].map(at)
  await assert.rejects(dialler.dial(machineId, [...refused, ...dialled], new AbortController().signal), (error: AppError) => {
    const failures = error.data['addresses'] as DialFailure[]
    assert.deepEqual(
      failures.filter(({ error: text }) => text === 'this machine itself listens at this address').map(({ address }) => address),
      refused,
    )
    return true
  })
  assert.deepEqual(asked, dialled)
})

test('a fixed number of machines is dialled at once, and the time limit of a waiting dial does not run', async (t) => {
  const { dialler, dials } = diallerOf()
  const { mock: timers } = t.mock.method(AbortSignal, 'timeout')
  const machines = Array.from({ length: MAX_PARALLEL_DIALS + 3 }, machineOf)
  const all = Promise.all(machines.map(async ({ machineId, address }) => dialler.dial(machineId, [address], new AbortController().signal)))
  await turns()
  // One timer per machine and one per address, only for dials in progress.
  assert.deepEqual([dials.length, timers.callCount()], [MAX_PARALLEL_DIALS, 2 * MAX_PARALLEL_DIALS])
  dials[0]!.answer()
  await turns()
  assert.deepEqual([dials.length, timers.callCount()], [MAX_PARALLEL_DIALS + 1, 2 * MAX_PARALLEL_DIALS + 2])
  while (dials.length < machines.length) {
    for (const { answer } of dials) answer()
    await turns()
  }
  for (const { answer } of dials) answer()
  assert.equal((await all).length, machines.length)
})

test('a waiting dial that is aborted ends at once and takes no place', async () => {
  const { dialler, dials } = diallerOf()
  const busy = Array.from({ length: MAX_PARALLEL_DIALS }, machineOf).map(async ({ machineId, address }) =>
    dialler.dial(machineId, [address], new AbortController().signal),
  )
  await turns()
  const [impatient, controller] = [machineOf(), new AbortController()]
  const waiting = dialler.dial(impatient.machineId, [impatient.address], controller.signal)
  controller.abort(new Error('no more'))
  await assert.rejects(waiting, /no more/)
  for (const { answer } of dials) answer()
  await Promise.all(busy)
  assert.equal(dials.length, MAX_PARALLEL_DIALS)
})

test('if the last good address refuses, a silent address delays the retry only by the given limit', async () => {
  const [{ machineId, address }, port] = [machineOf(), 5484]
  const swallowing = address.replace('5483', String(port))
  let refuses = false
  const asked: string[] = []
  const dialler = new Dialler({
    ...everybodyIsKnown,
    dial: async (_machine, to, { signal }) => {
      asked.push(String(to))
      if (String(to) === swallowing)
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
      if (refuses) throw new Error('ECONNRESET')
      return { remotePeer: peerIdFromString(address.split('/p2p/')[1]!) } as Connection
    },
  })
  const dial = async () =>
    dialler.dial(machineId, [swallowing, address], AbortSignal.timeout(ADDRESS_DIAL_MS), { othersMs: RESUME_OTHER_ADDRESS_MS })
  await dial()
  refuses = true
  const began = performance.now()
  await assert.rejects(dial(), { code: 'peer_unreachable' })
  const took = performance.now() - began
  assert.ok(took < ADDRESS_DIAL_MS - 1_000, `${took} ms`)
  refuses = false
  await dial()
  assert.deepEqual(asked, [swallowing, address, address, swallowing, address])
})

test('the last good address of a known machine is remembered despite many other dials', async () => {
  const [{ machineId, address }, port] = [machineOf(), 5484]
  const old = address.replace('5483', String(port))
  const asked: string[] = []
  const dialler = new Dialler({
    ...everybodyIsKnown,
    isKnown: (machine) => machine === machineId,
    dial: async (_machine, to) => {
      asked.push(String(to))
      if (String(to) === old) throw new Error('ECONNREFUSED')
      return { remotePeer: peerIdFromString(String(to).split('/p2p/')[1]!) } as Connection
    },
  })
  const dial = async (machine: MachineId, addresses: readonly string[]) => dialler.dial(machine, addresses, new AbortController().signal)
  await dial(machineId, [old, address])
  for (let i = 0; i < MAX_CONNECTIONS; i++) {
    const stranger = machineOf()
    await dial(stranger.machineId, [stranger.address])
  }
  asked.length = 0
  await dial(machineId, [old, address])
  assert.deepEqual(asked, [address])
})

const behind = (relay: string, machine: string): string =>
  `/ip4/192.0.2.7/tcp/5483/p2p/${peerIdOf(relay)}/p2p-circuit/p2p/${peerIdOf(machine)}`

test('once a relayed address has answered, the direct dials to that machine end', async () => {
  const [relay, underway] = [machineOf(), new Set<string>()]
  const dialler = new Dialler({
    ...everybodyIsKnown,
    dial: async (_machine, to, { signal }) => {
      underway.add(String(to))
      return new Promise((_, reject) =>
        signal.addEventListener('abort', () => {
          underway.delete(String(to))
          reject(signal.reason as Error)
        }),
      )
    },
    dialRelayed: async (to) => ({ remotePeer: peerIdFromString(String(to).split('/p2p/').at(-1)!) }) as Connection,
  })
  const machines = Array.from({ length: 3 }, machineOf)
  for (const { machineId, address } of machines)
    await dialler.dial(machineId, [address, behind(relay.machineId, machineId)], new AbortController().signal)
  await turns()
  assert.deepEqual([...underway], [])
})

test('a relayed address needs a known relay, and does not wait for addresses that do not answer', async () => {
  const [{ machineId, address }, relay, other] = [machineOf(), machineOf(), machineOf()]
  const asked: string[] = []
  const dialler = new Dialler({
    ...everybodyIsKnown,
    isKnown: (machine) => machine !== other.machineId,
    // A network that this machine is not part of. No answer comes back.
    dial: async (_machine, _to, { signal }) =>
      new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
    dialRelayed: async (to) => {
      asked.push(String(to))
      return { remotePeer: peerIdFromString(peerIdOf(machineId)) } as Connection
    },
  })
  const [good, bad] = [behind(relay.machineId, machineId), behind(other.machineId, machineId)]
  const caller = new AbortController()
  const began = performance.now()
  await dialler.dial(machineId, [address, bad, good], caller.signal)
  const took = performance.now() - began
  assert.ok(took < ADDRESS_DIAL_MS - 1_000, `${took} ms`)
  assert.deepEqual(asked, [good])
  const refused = dialler.dial(machineId, [bad], AbortSignal.timeout(ADDRESS_DIAL_MS))
  await assert.rejects(refused, { code: 'peer_unreachable', message: /the relay is not a contact/ })
  caller.abort()
})

test('a background dial is ended for an awaited dial, and no background dial starts during it', async () => {
  const { machineId, address } = machineOf()
  const going: AbortSignal[] = []
  const dialler = new Dialler({
    ...everybodyIsKnown,
    dial: async (_machine, _address, { signal }) => {
      going.push(signal)
      return new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)))
    },
  })
  const left = new AbortController()
  const dial = async (background: boolean) => dialler.dial(machineId, [address], left.signal, { background })
  const background = dial(true)
  await turns()
  const awaited = dial(false)
  await assert.rejects(background, { code: 'conflict' })
  await turns()
  assert.deepEqual(
    going.map(({ aborted }) => aborted),
    [true, false],
  )
  await assert.rejects(dial(true), { code: 'conflict' })
  assert.equal(going.length, 2)
  left.abort(new Error('left'))
  await assert.rejects(awaited, { message: 'left' })
  // No dial is awaited any more.
  const later = machineOf()
  void dialler.dial(later.machineId, [later.address], new AbortController().signal, { background: true }).catch(() => undefined)
  await turns()
  assert.equal(going.length, 3)
})

test('an awaited dial waits for a stuck background dial only until its own caller aborts it', async () => {
  const { dialler, dials } = diallerOf()
  const { machineId, address } = machineOf()
  const background = dialler.dial(machineId, [address], new AbortController().signal, { background: true })
  await turns()
  const left = new AbortController()
  const awaited = dialler.dial(machineId, [address], left.signal)
  await turns()
  assert.equal(dials.length, 1)
  left.abort(new Error('left'))
  await assert.rejects(awaited, { message: 'left' })
  dials[0]!.answer()
  await background
})
