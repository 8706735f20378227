import assert from 'node:assert/strict'
import { readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../../../src/base/errors.ts'
import { identityText, ownIdentity } from '../../../../src/base/process-info.ts'
import { LedgerFile, readLedger } from '../../../../src/programs/x0x/fleet/ledger-file.ts'
import { LedgerChain, type RequestedHost, type LedgerHead, type LedgerRecord } from '../../../../src/programs/x0x/fleet/ledger-state.ts'
import { FANOUT_ENDS } from '../../../../src/protocol/api/fanout.ts'
import { agentIdOf, denied, hostEnd, notStarted, requestIdOf, unknown, unreachable } from '../../../support/fleet-daemon.ts'
import { hasProc } from '../../../support/processes.ts'
import { tempDir } from '../../../support/temp-dir.ts'

const NAMES = ['web1', 'web2', 'web3', 'web4', 'web5', 'web6']
const ASKED: RequestedHost[] = NAMES.map((host) => ({ host, agent_id: agentIdOf(host), request_id: requestIdOf(host) }))
const HEAD: LedgerHead = {
  version: 1,
  fanout_id: 'f1',
  at: '2026-01-01T00:00:00.000Z',
  argv: ['deploy', '42'],
  stdin_bytes: 0,
  stdin_sha256: null,
  asked: NAMES.length,
}
const begun = (host: string): LedgerRecord => ({ type: 'begun', host, request_id: requestIdOf(host) })

const WRONG_SUMS = {
  fanout_id: 'f1',
  ok: true,
  asked: 6,
  ran: 6,
  denied: 0,
  unreachable: 0,
  not_started: 0,
  cancelled: 0,
  unknown: 0,
  failed: 0,
}

/** A ledger of six hosts. One has no result, and two were asked again. */
const written = async (path: string): Promise<Buffer> => {
  const file = await LedgerFile.create(path, HEAD, ASKED)
  for (const host of NAMES.slice(0, 5)) file.add(begun(host))
  for (const end of [hostEnd('web1'), denied('web2'), unreachable('web3'), unknown('web4'), notStarted('web6')])
    file.add({ type: 'host', ...end })
  file.add({ type: 'ledger', ...file.state.ledger() })
  const again = ['web2', 'web6'].map((host) => ({ host, request_id: `${requestIdOf(host).slice(0, -1)}f` }))
  file.add({ type: 'retry', which: 'certain', fanout_id: 'f2', at: HEAD.at, hosts: again })
  file.add(begun('web2'))
  file.add({ type: 'host', ...hostEnd('web2', { code: 1 }) })
  file.add({ type: 'ledger', ...file.state.ledger() })
  await file.close()
  return readFile(path)
}

const NO_PROC = { skip: hasProc ? false : 'no /proc: only the pid is known' }

const isBadRequest = (error: unknown): boolean => isAppError(error, 'bad_request')

test('a ledger file is readable only by its owner, and holds the result of each host', async (t) => {
  const path = join(await tempDir(t), 'x.ledger')
  await written(path)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  const { state } = await readLedger(path)
  assert.deepEqual(
    state.ends().map(({ host, end, code }) => [host, end, code]),
    [
      ['web1', 'ran', 0],
      ['web2', 'ran', 1],
      ['web3', 'unreachable', null],
      ['web4', 'unknown', null],
      ['web5', 'unknown', null],
      ['web6', 'not_started', null],
    ],
  )
  assert.deepEqual(state.ledger(), {
    fanout_id: 'f1',
    ok: false,
    asked: 6,
    ran: 2,
    denied: 0,
    unreachable: 1,
    not_started: 1,
    cancelled: 0,
    unknown: 2,
    failed: 1,
  })
})

test('a ledger truncated anywhere is either refused or read as a consistent state', async (t) => {
  const directory = await tempDir(t)
  const whole = await written(join(directory, 'whole'))
  const path = join(directory, 'cut')
  const ends = [...whole.entries()].flatMap(([at, byte]) => (byte === 0x0a ? [at, at + 1, at + 2] : []))
  const anywhere = fc.sample(fc.nat(whole.length), 100)
  let read = 0
  for (const length of [0, ...ends, ...anywhere]) {
    await writeFile(path, whole.subarray(0, length))
    const ledger = await readLedger(path).catch((error: unknown) => {
      assert.ok(isBadRequest(error), String(error))
      return null
    })
    if (ledger === null) continue
    read += 1
    const sums = ledger.state.ledger()
    assert.equal(
      FANOUT_ENDS.reduce((sum, end) => sum + sums[end], 0),
      NAMES.length,
    )
    // No host that has begun is reported as not started.
    const text = whole.toString('utf8', 0, ledger.bytes)
    for (const { host, end } of ledger.state.ends())
      assert.ok(end !== 'not_started' || host === 'web6' || !text.includes(`"begun","host":"${host}"`))
  }
  assert.ok(read > 30)
})

test('a ledger altered in any way is refused', async (t) => {
  const directory = await tempDir(t)
  const whole = await written(join(directory, 'whole'))
  const path = join(directory, 'altered')
  const lines = whole.toString().trimEnd().split('\n')
  const change = fc.oneof(
    fc.record({ at: fc.nat(whole.length - 2), by: fc.integer({ min: 1, max: 255 }) }).map(({ at, by }) => {
      const bytes = Buffer.from(whole)
      bytes[at] = (bytes[at]! + by) % 256
      return bytes
    }),
    fc.nat(lines.length - 2).map((at) => Buffer.from(`${lines.toSpliced(at, 1).join('\n')}\n`)),
    fc.tuple(fc.nat(lines.length - 1), fc.nat(lines.length - 1)).map(([from, to]) => {
      const [line] = lines.slice(from)
      return Buffer.from(`${lines.toSpliced(from, 1).toSpliced(to, 0, line!).join('\n')}\n`)
    }),
    fc.nat(lines.length - 1).map((at) => Buffer.from(`${lines.toSpliced(at, 0, lines[at]!).join('\n')}\n`)),
  )
  await fc.assert(
    fc.asyncProperty(change, async (bytes) => {
      fc.pre(!bytes.equals(whole))
      await writeFile(path, bytes)
      const read = await readLedger(path).catch((error: unknown) => error)
      // A missing line feed at the end drops the last line, as a truncation does.
      if (!isBadRequest(read)) assert.ok((read as { bytes: number }).bytes < whole.length)
    }),
    { numRuns: 300 },
  )
})

test('a ledger whose hashes match but whose records contradict each other is refused', async (t) => {
  const path = join(await tempDir(t), 'x.ledger')
  const first: LedgerRecord[] = [
    { type: 'x0x_ledger', ...HEAD },
    { type: 'hosts', hosts: ASKED },
  ]
  const end = (host: string): LedgerRecord => ({ type: 'host', ...hostEnd(host) })
  const again = (which: 'certain' | 'unknown'): LedgerRecord => ({
    type: 'retry',
    which,
    fanout_id: 'f',
    at: '',
    hosts: [{ host: 'web1', request_id: 'r' }],
  })
  const cases: [LedgerRecord[], RegExp][] = [
    [[begun('web1')], /first line/],
    [[first[1]!], /first line/],
    [[first[0]!, first[0]!], /first line/],
    [[{ ...first[0]!, version: 2 } as LedgerRecord, first[1]!], /later release/],
    [[Object.assign({ more: 1 }, first[0]!), first[1]!], /more/],
    [[first[0]!], /before its list of hosts/],
    [[first[0]!, begun('web1')], /was not asked/],
    [[...first, first[1]!], /twice/],
    [[...first, begun('web7')], /was not asked/],
    [[...first, begun('web1'), begun('web1')], /begins twice/],
    [[...first, end('web1'), end('web1')], /ends twice/],
    [[...first, { type: 'host', ...hostEnd('web1', { agent_id: 'c'.repeat(64) }) }], /another agent/],
    [[...first, { type: 'ledger', ...WRONG_SUMS }], /counts differ/],
    [[...first, again('unknown')], /not one to retry/],
    [[...first, end('web1'), again('certain')], /not one to retry/],
    [[...first, { type: 'nonsense' } as unknown as LedgerRecord], /this release does not know/],
  ]
  for (const [records, why] of cases) {
    const chain = new LedgerChain()
    await writeFile(path, records.map((record) => chain.encode(record)).join(''))
    await assert.rejects(readLedger(path), (error) => isBadRequest(error) && why.test((error as Error).message), String(why))
  }
  for (const text of ['', '\n', 'x', '{}\n', 'null\n', '{"type":"x0x_ledger"}\n', '\0'.repeat(100)]) {
    await writeFile(path, text)
    await assert.rejects(readLedger(path), isBadRequest)
  }
})

test('creating a ledger does not overwrite an existing file', async (t) => {
  const directory = await tempDir(t)
  const [ledger, other] = [join(directory, 'x.ledger'), join(directory, 'notes')]
  await written(ledger)
  await writeFile(other, 'mine')
  await assert.rejects(LedgerFile.create(ledger, HEAD, ASKED), /is the ledger of another fan-out/)
  await assert.rejects(LedgerFile.create(other, HEAD, ASKED), /is not a ledger/)
  assert.equal(await readFile(other, 'utf8'), 'mine')
})

test('resuming a ledger cuts off an incomplete line, and writing stops if another program changes the file', async (t) => {
  const path = join(await tempDir(t), 'x.ledger')
  const whole = await written(path)
  await writeFile(path, Buffer.concat([whole, Buffer.from('{"type":"beg')]))
  const file = await LedgerFile.resume(path)
  file.add({ type: 'retry', which: 'certain', fanout_id: 'f3', at: '', hosts: [{ host: 'web3', request_id: 'r' }] })
  await file.flush()
  assert.equal(file.failure, null)
  assert.deepEqual((await readFile(path)).subarray(0, whole.length), whole)
  await readLedger(path)
  await writeFile(path, whole)
  let failed = 0
  file.onFailure(() => (failed += 1))
  file.add(begun('web3'))
  await file.close()
  assert.match(String(file.failure), /another program has changed it/)
  assert.equal(failed, 1)
  assert.deepEqual(await readFile(path), whole)
})

test('writing stops with an error if the ledger file is removed', async (t) => {
  const path = join(await tempDir(t), 'x.ledger')
  const file = await LedgerFile.create(path, HEAD, ASKED)
  let failed = 0
  file.onFailure(() => (failed += 1))
  await rm(path)
  file.add(begun('web1'))
  await file.close()
  assert.match(String(file.failure), /^it was removed meanwhile$/)
  assert.equal(failed, 1)
})

test('only one program writes a ledger at a time, and the lock of a dead process is ignored', NO_PROC, async (t) => {
  const directory = await tempDir(t)
  const path = join(directory, 'x.ledger')
  const first = await LedgerFile.create(path, HEAD, ASKED)
  const link = join(directory, 'link')
  await symlink(path, link)
  for (const name of [path, link])
    await assert.rejects(
      LedgerFile.resume(name),
      (error) => isBadRequest(error) && /another x0x writes it \(pid \d+\)/.test((error as Error).message),
    )
  assert.equal(first.failure, null)
  await first.close()
  assert.deepEqual((await readdir(directory)).toSorted(), ['link', 'x.ledger'])
  // This process has the pid now, and the process that had it before has ended.
  const left = `${path}.${identityText({ ...ownIdentity(), started: '1' }, '-')}.writes`
  await writeFile(left, '')
  const second = await LedgerFile.resume(path)
  assert.ok(!(await readdir(directory)).includes(basename(left)))
  await second.close()
  await writeFile(`${path}.${identityText({ ...ownIdentity(), boot: '1', machine: '1' }, '-')}.writes`, '')
  // This machine cannot know whether a process of another machine still runs.
  await assert.rejects(LedgerFile.resume(path), (error) => isBadRequest(error) && /another x0x writes it/.test((error as Error).message))
})
