import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import { readLedger } from '../../../../src/programs/x0x/fleet/ledger-file.ts'
import { runCli, type InProcessOptions } from '../../../support/fake-daemon.ts'
import { fleetDaemon, hostEnd, notStarted, type AskedFanout } from '../../../support/fleet-daemon.ts'

const HOSTS = ['web1', 'web2', 'web3']

/** Lets a test send signals at a time of its choice. */
const signals = (): { readonly onSignal: NonNullable<InProcessOptions['onSignal']>; send(): void } => {
  const listeners = new Set<(signal: NodeJS.Signals) => void>()
  return {
    onSignal: (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    send: () => {
      for (const listener of listeners) listener('SIGINT')
    },
  }
}

test('Ctrl-C cancels all runs, and the summary lists the cancelled hosts and those not started', async (t) => {
  const { onSignal, send } = signals()
  let fanout: AskedFanout
  const { dir, seen } = await fleetDaemon(
    t,
    HOSTS,
    (asked) => {
      fanout = asked
      asked.begun('web1', 'web2')
      asked.output('web1', 'ready\n')
      asked.ended(hostEnd('web2'))
    },
    () => {
      fanout.ended(hostEnd('web1', { end: 'cancelled', code: null, signal: 15 }), notStarted('web3'))
      fanout.close()
    },
  )
  const { status, stdout, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--', 'x'], { onSignal, onOutput: send })
  assert.equal(status, 130)
  assert.equal(stdout, 'web1: ready\n')
  const asked = JSON.parse(String(seen.find(({ path }) => path === '/exec/fanout')?.body)) as { fanout_id: string }
  assert.ok(seen.find(({ path }) => path === '/exec/cancel')?.body.includes(asked.fanout_id))
  assert.match(stderr, /^x0x: 3 hosts asked: 1 ran, 0 denied, 0 unreachable, 1 not started, 1 cancelled, 0 unknown; /)
  assert.match(stderr, /\n {5}not started \(1\): web3: .*\n {5}cancelled \(1\): web1: /)
})

test('a second Ctrl-C ends x0x at once, and the summary lists the unknown hosts', async (t) => {
  const { onSignal, send } = signals()
  const { dir } = await fleetDaemon(
    t,
    HOSTS,
    (asked) => {
      asked.begun('web1', 'web2')
      asked.output('web1', 'ready\n')
      asked.ended(hostEnd('web2'))
    },
    send,
  )
  const file = join(dir, 'x.ledger')
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--ledger', file, '--', 'x'], { onSignal, onOutput: send })
  assert.equal(status, 130)
  assert.match(stderr, /^x0x: not waiting: how 1 command end/)
  assert.match(stderr, /3 hosts asked: 1 ran, 0 denied, 0 unreachable, 1 not started, 0 cancelled, 1 unknown; /)
  const { state } = await readLedger(file)
  assert.deepEqual(
    state.ends().map(({ end }) => end),
    ['unknown', 'ran', 'not_started'],
  )
})

test('Ctrl-C while x0x reads stdin from a terminal requests no run', async (t) => {
  const { onSignal, send } = signals()
  const { dir, seen } = await fleetDaemon(t, HOSTS, () => assert.fail('it was asked'))
  const { PassThrough } = await import('node:stream')
  const { main } = await import('../../../../src/programs/x0x/main.ts')
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()]
  const status = main(['--data-dir', dir, 'exec', '@all', '--stdin-file', '-', '--', 'x'], {}, { stdin, stdout, stderr, onSignal })
  stdin.write('typed')
  setTimeout(send, 50)
  assert.equal(await status, 130)
  assert.deepEqual(seen, [])
})

test('if its output cannot be written, x0x cancels all runs and prints the result of each host', async (t) => {
  let fanout: AskedFanout
  const { dir } = await fleetDaemon(
    t,
    HOSTS,
    (asked) => {
      fanout = asked
      asked.begun('web1', 'web2')
      asked.output('web1', 'lost\n')
      asked.ended(hostEnd('web2'))
      asked.output('web1', 'lost\n')
    },
    () => {
      fanout.ended(hostEnd('web1', { end: 'cancelled', code: null, signal: 15 }), notStarted('web3'))
      fanout.close()
    },
  )
  const stdoutFails = Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' })
  const { status, stderr } = await runCli(['--data-dir', dir, 'exec', '@all', '--', 'x'], { stdoutFails })
  assert.equal(status, 3)
  assert.match(stderr, /^x0x: 3 hosts asked: 1 ran, 0 denied, 0 unreachable, 1 not started, 1 cancelled, 0 unknown; /)
  assert.match(stderr, /\nx0x: cannot write the output: ENOSPC/)
})
