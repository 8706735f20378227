import assert from 'node:assert/strict'
import { constants } from 'node:os'
import { describe, test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { until } from '../../test/support/mesh-of-daemons.ts'
import { MAX_RPC_MESSAGE } from '../../src/protocol/limits/rexd.ts'
import type { Peer, Session } from './peer.ts'
import { allGone } from './processes.ts'
import { overStdio } from './transports.ts'

// Effects of lines, pipes and signals on a server. None of its processes may be left.

const MiB = 1024 * 1024

const expectNext = async (peer: Peer, code: number): Promise<void> => {
  const { id, error } = await peer.stray()
  assert.deepEqual([id, error?.code], [null, code])
}

/** A program with a child. Neither ends by itself. Returns their PIDs. */
const family = async (session: Session, before = ''): Promise<number[]> => {
  const log = await session.shell(`${before} sleep 1000 & echo pid $!; echo pid $$; wait`, { timeout_ms: 200_000 })
  await until('both are there', () => log.pids().length === 2)
  return log.pids()
}

test('lines can arrive in pieces, end in CRLF, be blank or contain invalid UTF-8', async (t) => {
  const peer = await overStdio.open(t)
  const { stdin } = peer.process.child
  const line = '{"jsonrpc":"2.0","id":"grün 😀","method":"no.such.method"}\r\n'
  for (const byte of Buffer.from(line)) {
    stdin.write(Buffer.from([byte]))
    await sleep(0)
  }
  assert.equal((await peer.answerTo('grün 😀')).error?.code, -32601)
  stdin.write(` \n\n\r\n\t\n\u00a0\u2003\ufeff\n${' '.repeat(128 * 1024)}\n`)
  for (const bytes of [[0xff], [0xc3], [0xed, 0xa0, 0x80], [0x22, 0xf8, 0x22], [0xef, 0xbb, 0xbf, 0x7b, 0x7d]]) {
    peer.raw(Buffer.from(bytes))
    await expectNext(peer, -32700)
  }
  const first = peer.answerTo(1)
  const second = peer.answerTo(2)
  stdin.write('{"jsonrpc":"2.0","id":1,"method":"a"}\n{"jsonrpc":"2.0","id":2,"method":"b"}\n')
  assert.deepEqual([(await first).error?.code, (await second).error?.code], [-32601, -32601])
  assert.deepEqual(peer.strays, [])
  await peer.close()
  assert.equal(await peer.process.exited, 0)
})

test('a line of 200 MiB is skipped in bounded memory and gets one error', async (t) => {
  const peer = await overStdio.open(t)
  await peer.failure(-32601, 'warm.up')
  const before = peer.process.memory('VmHWM')
  const { stdin } = peer.process.child
  const piece = Buffer.alloc(MiB, 'x')
  for (let sent = 0; sent < 200; sent++) if (!stdin.write(piece)) await new Promise((resolve) => stdin.once('drain', resolve))
  stdin.write('\n')
  await expectNext(peer, -32008)
  await peer.failure(-32601, 'and.on')
  assert.deepEqual(peer.strays, [])
  assert.ok(peer.process.memory('VmHWM') - before < 16 * MAX_RPC_MESSAGE)
  await peer.close()
})

test('a last line without a line end is processed, and gets an error if it is incomplete', async (t) => {
  for (const [text, code] of [
    ['{"jsonrpc":"2.0","id":null,"method":"no.such.method"}', -32601],
    ['{"jsonrpc":"2.0","id":null,"meth', -32700],
    [`"${'x'.repeat(MAX_RPC_MESSAGE)}`, -32008],
  ] as const) {
    const peer = await overStdio.open(t)
    peer.process.child.stdin.end(text)
    await expectNext(peer, code)
    assert.equal(await peer.process.exited, 0)
    assert.deepEqual(peer.strays, [])
  }
})

/** Checks that rexd and all its programs have ended. */
const assertOver = async (peer: Peer, pids: readonly number[]): Promise<void> => {
  await until('rexd has ended', () => !peer.process.running, 15_000)
  await allGone(pids)
}

test('if the client stops reading the output, all programs and the server end, even with open input', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  const pids = await family(session)
  const log = await session.shell('while echo line; do sleep 0.05; done')
  await log.printed('line')
  peer.process.child.stdout.destroy()
  await assertOver(peer, pids)
  assert.equal(await peer.process.exited, 0)
})

const stopped = async (t: TestContext, signal: NodeJS.Signals, before: string): Promise<void> => {
  const peer = await overStdio.open(t, { server: ['log_level = "debug"'], security: ['allow_shell = true'] })
  const session = await peer.session()
  const pids = await family(session, before)
  peer.process.child.kill(signal)
  const [{ process_id }] = (await peer.home.journal()).flatMap((line) =>
    line.event === 'request' ? [{ process_id: `p_${line['request_id']}` }] : [],
  ) as [{ process_id: string }]
  const exit = await peer.log(process_id).finished()
  assert.equal(exit['signal'], before === '' ? 'SIGTERM' : 'SIGKILL')
  assert.equal(await peer.process.exited, 128 + constants.signals[signal])
  await allGone(pids)
  await peer.close()
  const journal = await peer.home.journal()
  assert.deepEqual(
    journal.filter(({ event }) => event === 'exit' || event === 'session').map(({ event, state }) => [event, state]),
    [
      ['session', 'opened'],
      ['exit', undefined],
      ['session', 'closed'],
    ],
  )
}

// Most of the time is the five seconds that a program has to end.
describe('the end of a server ends its programs', { concurrency: 4 }, () => {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const)
    test(`${signal} ends every program and reports each end, and the exit status shows the signal`, async (t) => stopped(t, signal, ''))

  test('a program that ignores SIGTERM is killed and does not outlive the server', async (t) => stopped(t, 'SIGTERM', "trap '' TERM;"))

  test('if the client is gone, its programs end, even while it waits for one', async (t) => {
    for (const waits of [false, true]) {
      const peer = await overStdio.open(t)
      const session = await peer.session()
      const pids = await family(session)
      if (waits) {
        const { processes } = await session.call<{ processes: { process_id: string }[] }>('session.info')
        const waited = peer.ask('exec.wait', { session_id: session.id, process_id: processes[0]!.process_id })
        waited.catch(() => undefined)
        await session.call('session.info')
      }
      peer.process.child.stdin.destroy()
      peer.process.child.stdout.destroy()
      await assertOver(peer, pids)
    }
  })
})

test('a file name that looks like a journal line cannot add a line to the journal', async (t) => {
  const peer = await overStdio.open(t)
  const session = await peer.session()
  const name = 'a\n{"event":"forged"}\r\u001b[2J'
  await session.call('fs.write', { path: name, content: 'x' })
  await session.failure(-32002, 'fs.read', { path: `../${name}` })
  const journal = await peer.home.journal()
  assert.ok(journal.every(({ event }) => event !== 'forged'))
  assert.ok(journal.some((line) => line['path'] === session.path(name)))
  await peer.close()
})
