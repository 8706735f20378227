import assert from 'node:assert/strict'
import { test } from 'node:test'

import { copyCommand, readCopyCommand } from '../../../src/programs/x0x/copy/copy-fleet.ts'
import { copyOrderOf, type UploadOrder } from '../../../src/programs/x0x/copy/places.ts'
import { LedgerState } from '../../../src/programs/x0x/fleet/ledger-state.ts'
import { denied, hostEnd, unknown } from '../../support/fleet-daemon.ts'

const PLAIN = { recursive: false, json: false, fanout: false }

const uploadOf = (words: readonly string[], fanout = false): UploadOrder => {
  const order = copyOrderOf(words, { ...PLAIN, fanout })
  assert.ok(order.direction === 'upload')
  return order
}

test('an upload to a host expression, or with an option of fan-outs, is a fan-out', () => {
  for (const host of ['web[1-20]', '@db', 'role=web', 'web1,web2']) {
    const order = uploadOf(['app.tar', `${host}:/srv/app/`])
    assert.deepEqual([order.host, order.isFanout, order.destination.path], [host, true, '/srv/app'])
  }
  assert.equal(uploadOf(['app.tar', 'bob:/srv']).isFanout, false)
  assert.equal(uploadOf(['app.tar', 'bob:/srv'], true).isFanout, true)
})

test('downloads from several hosts are refused, and so is standard input as a source for them', () => {
  assert.throws(() => copyOrderOf(['web[1-3]:/a', '.'], PLAIN), /a download is from one/)
  assert.throws(() => copyOrderOf(['bob:/a', '.'], { ...PLAIN, fanout: true }), /no options of a fan-out/)
  assert.throws(() => copyOrderOf(['-', '@db:/a'], PLAIN), /standard input cannot be copied to several hosts/)
})

test('the ledger stores the complete command, which can be repeated from any directory', () => {
  for (const [words, argv] of [
    [
      ['app.tar', '/x/y:z', '@db:/srv/'],
      ['@cp', 'recursive', '--', '/home/me/app.tar', '/x/y:z', '/srv/'],
    ],
    [
      ['.', '@db:/'],
      ['@cp', 'recursive', '--', '/home/me/.', '/'],
    ],
  ]) {
    const command = copyCommand({ order: uploadOf(words!), options: { recursive: true, preserve: false } }, '/home/me')
    assert.deepEqual(command, argv)
    const { order, options } = readCopyCommand(command)
    assert.deepEqual(copyCommand({ order, options }, '/elsewhere'), argv)
  }
  for (const argv of [['uptime'], ['@cp'], ['@cp', '--'], ['@cp', 'later', '--', '/a', '/b'], ['@cp', '--', '/a', 'b']])
    assert.throws(() => readCopyCommand(argv), { code: 'bad_request' }, argv.join(' '))
})

test('a retry of copies asks every host that did not succeed', () => {
  const state = new LedgerState()
  const ends = [hostEnd('a'), hostEnd('b', { code: 1 }), denied('c'), unknown('d')]
  const head = { version: 1, fanout_id: hostEnd('a').request_id!, at: '', argv: ['@cp'], stdin_bytes: 0, stdin_sha256: null }
  state.add({ type: 'x0x_ledger', ...head, asked: ends.length })
  state.add({ type: 'hosts', hosts: ends.map(({ host, agent_id, request_id }) => ({ host, agent_id, request_id: request_id! })) })
  for (const end of ends) state.add({ type: 'host', ...end })
  assert.deepEqual(
    state.askedAgain('unsuccessful', () => 'new').map(({ host }) => host),
    ['b', 'c', 'd'],
  )
})
