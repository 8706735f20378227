import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'

import { METHODS } from '../../src/doors/rpc/schemas.ts'
import type { Peer } from './peer.ts'
import type { Requirement } from './requirement.ts'
import { DOCUMENTED_METHODS, NAMES, REQUIREMENTS } from './requirements.ts'
import { COMMON, type ConfigOptions } from './server.ts'
import { TRANSPORTS, type Transport } from './transports.ts'

// The first requirement of each method and those about messages and events run over every transport. All others concern the engine, which
// does not know the transport, so each of them runs over one transport.

const ENGINE = /^(exec\.start|exec\.kill|fs|journal|pty|session\.info|session\.open|timeout)\b/
const methodOf = ({ id }: Requirement): string => id.split('/', 1)[0]!

const isFirst = (row: Requirement): boolean =>
  METHODS.some((method) => method === methodOf(row)) && REQUIREMENTS.find((one) => methodOf(one) === methodOf(row)) === row

const holdsOver = (transport: Transport, row: Requirement): boolean => {
  if (row.only !== null) return row.only.names.includes(transport.name)
  if (!ENGINE.test(row.id) || isFirst(row)) return true
  return TRANSPORTS[REQUIREMENTS.indexOf(row) % TRANSPORTS.length] === transport
}
const rowsOver = (transport: Transport): Requirement[] => REQUIREMENTS.filter((row) => holdsOver(transport, row))

test('every method, field, answer, event and error has a requirement, and no requirement names an unknown one', () => {
  const named = REQUIREMENTS.flatMap(({ names }) => names)
  assert.deepEqual([...DOCUMENTED_METHODS].sort(), [...METHODS].sort(), 'the methods of docs/rexd.md')
  assert.ok(NAMES.length > 200)
  assert.deepEqual(
    {
      withoutRow: NAMES.filter((name) => !named.includes(name)),
      unknown: [...new Set(named)].filter((name) => !NAMES.includes(name)),
    },
    { withoutRow: [], unknown: [] },
  )
})

test('every method is tested over every transport, and every requirement over at least one', () => {
  for (const transport of TRANSPORTS) {
    const named = rowsOver(transport).flatMap(({ names }) => names)
    const without = METHODS.filter((method) => !named.some((name) => name === method || name.startsWith(`${method}.`)))
    assert.deepEqual(without, [], transport.name)
  }
  const nowhere = REQUIREMENTS.filter((row) => !TRANSPORTS.some((transport) => holdsOver(transport, row)))
  assert.deepEqual(nowhere, [])
})

test('the IDs of the requirements are unique', () => {
  const ids = REQUIREMENTS.map(({ id }) => id)
  assert.deepEqual(
    ids.filter((id, at) => ids.indexOf(id) !== at),
    [],
  )
})

/** Tests one transport, one requirement after another. Requirements with the same configuration share a server. */
const suite = (transport: Transport): void => {
  const shared = new Map<string, Promise<Peer>>()
  const cleaners: (() => unknown)[] = []
  const t = { after: (clean: unknown) => void cleaners.push(clean as () => unknown) }
  const sharedPeer = async (config: ConfigOptions): Promise<Peer> => {
    const key = JSON.stringify(config)
    const peer = shared.get(key) ?? transport.open(t, config)
    shared.set(key, peer)
    return peer
  }
  after(async () => {
    try {
      for (const peer of shared.values()) await (await peer).close()
    } finally {
      for (const clean of cleaners) await clean()
    }
  })
  for (const row of rowsOver(transport)) {
    const title = `${row.id}: ${row.title}${row.missing === null ? '' : ` (skipped: ${row.missing})`}`
    test(title, { skip: row.missing !== null }, async (own) => {
      const config = row.config ?? COMMON
      const peer = await (row.alone ? transport.open(own, config) : sharedPeer(config))
      try {
        await row.test(peer)
      } finally {
        peer.resume()
        await (row.alone ? peer.close() : peer.tidy())
      }
    })
  }
}

// Most of the time is spent waiting for programs.
describe('the table', { concurrency: TRANSPORTS.length }, () => {
  for (const transport of TRANSPORTS) describe(`over ${transport.name}`, { concurrency: 1 }, () => suite(transport))
})
