import assert from 'node:assert/strict'
import { after, describe, test } from 'node:test'

import { METHODS } from '../../src/doors/rpc/schemas.ts'
import type { Peer } from './peer.ts'
import type { Requirement } from './requirement.ts'
import { DOCUMENTED_METHODS, NAMES, REQUIREMENTS } from './requirements.ts'
import { COMMON } from './server.ts'
import { TRANSPORTS, type Transport } from './transports.ts'

// Every row of the table over every transport that there is.

const holdsOver = (transport: Transport, { only }: Requirement): boolean => only === null || only.names.includes(transport.name)
const rowsOver = (transport: Transport): Requirement[] => REQUIREMENTS.filter((row) => holdsOver(transport, row))

test('every method, field, answer, event and error has a row that is about it, and every row is about what there is', () => {
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

test('every method is tried over every transport, and every row over one', () => {
  for (const transport of TRANSPORTS) {
    const named = rowsOver(transport).flatMap(({ names }) => names)
    const without = METHODS.filter((method) => !named.some((name) => name === method || name.startsWith(`${method}.`)))
    assert.deepEqual(without, [], transport.name)
  }
  const nowhere = REQUIREMENTS.filter((row) => !TRANSPORTS.some((transport) => holdsOver(transport, row)))
  assert.deepEqual(nowhere, [])
})

test('no two rows have the same id', () => {
  const ids = REQUIREMENTS.map(({ id }) => id)
  assert.deepEqual(
    ids.filter((id, at) => ids.indexOf(id) !== at),
    [],
  )
})

/** The rows of one transport, one after the other: most of them share a server. */
const suite = (transport: Transport): void => {
  let shared: Promise<Peer> | null = null
  const cleaners: (() => unknown)[] = []
  after(async () => {
    try {
      await (await shared)?.close()
    } finally {
      for (const clean of cleaners) await clean()
    }
  })
  for (const row of rowsOver(transport)) {
    const title = `${row.id}: ${row.title}${row.missing === null ? '' : ` (skipped: ${row.missing})`}`
    test(title, { skip: row.missing !== null }, async (t) => {
      if (row.config === null) {
        shared ??= transport.open({ after: (clean) => cleaners.push(clean as () => unknown) }, COMMON)
        const peer = await shared
        await row.test(peer)
        await peer.tidy()
      } else {
        const peer = await transport.open(t, row.config)
        await row.test(peer)
        await peer.close()
      }
    })
  }
}

// Much of their time is that of programs that are waited for.
describe('the table', { concurrency: TRANSPORTS.length }, () => {
  for (const transport of TRANSPORTS) describe(`over ${transport.name}`, { concurrency: 1 }, () => suite(transport))
})
