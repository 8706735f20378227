import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import {
  appendFile,
  chmod,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rm,
  rmdir,
  stat,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../../src/base/errors.ts'
import type { Logger } from '../../../src/base/log.ts'
import type { DetachedTarget } from '../../../src/exec/detached/detached-types.ts'
import type { DetachedRunRecord } from '../../../src/executor/detached/record.ts'
import { DetachedRunStore, keptName } from '../../../src/executor/detached/store.ts'
import { detachedRecord } from '../../../src/executor/detached/record-file.ts'
import {
  DETACHED_KEPT_MS,
  DETACHED_REMEMBERED_MS,
  LEAST_DETACHED_BYTES_PER_AGENT,
  LEAST_DETACHED_PER_AGENT,
  MAX_DETACHED_BYTES_PER_AGENT,
  MAX_DETACHED_PER_AGENT,
  MAX_DETACHED_RUNS,
} from '../../../src/protocol/limits/detached.ts'
import { begin, crash, DETACH_KEYS, DetachedMemory, directoryOf, exitFrame, never, untilOver } from '../../support/detached.ts'
import { execPair, type ExecPair } from '../../support/exec-pair.ts'
import { soon } from '../../support/local-engine.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { silent } from '../../support/processes.ts'
import { tempDir } from '../../support/temp-dir.ts'

/** For runs that are in no journal. */
const ALONE = { forgotten: async () => true, neverBegan: async () => exitFrame() }
/** A program that never waits for room. */
const writer = { resume: () => undefined, outputLost: () => undefined }
const SCRIPTS = { waits: 'echo hello; sleep 60', quick: 'echo out; echo err >&2; exit 7' }

/** Opens the store of this directory, as a starting daemon does. */
const opened = async (
  t: TestContext,
  dataDir: string,
  components: Partial<ConstructorParameters<typeof DetachedRunStore>[0]> = {},
  remembered?: number,
): Promise<DetachedRunStore> => {
  const init = { dataDir, ...(remembered !== undefined && { remembered }) }
  const runs = new DetachedRunStore({ clock: new ManualClock(), log: silent, ...ALONE, ...components }, init)
  await runs.load()
  t.after(() => runs.stop())
  return runs
}

test('the files of a detached run are accessible only to their owner', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  await begin(pair, 'waits')
  const directory = directoryOf(pair)
  assert.equal((await stat(directory)).mode & 0o777, 0o700)
  const names = (await readdir(directory)).filter((name) => !name.startsWith('.'))
  assert.deepEqual(names.map((name) => name.slice(64)).toSorted(), ['.out', '.run'])
  for (const name of names) assert.equal((await stat(join(directory, name))).mode & 0o777, 0o600)
})

test('an ended run with its signed Exit is kept after a restart of the executor process', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'quick')
  await untilOver(pair, target)
  await pair.restart()
  const sink = new DetachedMemory()
  const { outcome, info } = await pair.detached.attach(target, 0, sink, never())
  assert.deepEqual([outcome?.code, outcome?.incomplete, sink.text('stdout'), sink.text('stderr')], [7, false, 'out\n', 'err\n'])
  assert.equal(info.state, 'ended')
  // A repeated request for the same run also gets the kept state.
  const { request_id, request_sha256: known_sha256 } = target
  assert.equal((await begin(pair, 'quick', { request_id, known_sha256 })).info.state, 'ended')
})

test('after a crash a run is lost, and its complete output pieces can be read', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  await soon(async () => (await pair.detached.state(target, never())).bytes_kept === 6)
  await crash(pair, async (directory) => {
    const [name] = (await readdir(directory)).filter((one) => one.endsWith('.out'))
    // Bytes of an interrupted write.
    await writeFile(join(directory, name!), Buffer.concat([await readFile(join(directory, name!)), Buffer.from([0x00, 0x09, 1, 2])]))
    await chmod(join(directory, name!), 0o600)
  })
  const sink = new DetachedMemory()
  const { outcome, info, next } = await pair.detached.attach(target, 0, sink, never())
  assert.deepEqual([outcome, info.state, next, sink.text('stdout')], [null, 'lost', 6, 'hello\n'])
  assert.deepEqual((await pair.detached.state(target, never())).kept_for_ms !== null, true)
  await pair.restart()
  assert.equal((await pair.detached.state(target, never())).state, 'lost')
  assert.equal((await pair.detached.forget(target, never())).state, 'expired')
  assert.deepEqual(
    (await readdir(directoryOf(pair))).filter((name) => name.endsWith('.out')),
    [],
  )
})

test('zeros that a power loss left at the end of the output are not read as output', async (t) => {
  const pair = await execPair(t, { scripts: { waits: 'echo hello >&2; sleep 60' }, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  await soon(async () => (await pair.detached.state(target, never())).bytes_kept === 6)
  await crash(pair, async () => appendFile(await outputOf(pair), Buffer.alloc(4_096)))
  const sink = new DetachedMemory()
  const { info } = await pair.detached.attach(target, 0, sink, never())
  assert.deepEqual([info.state, info.bytes_kept, sink.text('stderr')], ['lost', 6, 'hello\n'])
})

test('the record of an ended run is written after its output is on disk', async (t) => {
  const runs = await opened(t, await tempDir(t))
  const kept = runs.admit(initOf(1), false)
  assert.ok(typeof kept === 'object')
  await kept.open(writer)
  const some = await open(join(await tempDir(t), 'x'), 'w')
  const states: string[] = []
  const synced = t.mock.method(Object.getPrototypeOf(some) as typeof some, 'datasync', async () => void states.push(kept.record.state))
  await some.close()
  kept.push('stdout', Buffer.from('x'))
  await kept.finish(null)
  assert.deepEqual([synced.mock.callCount(), states, kept.record.state], [1, ['running'], 'lost'])
})

test('a start removes invalid records, keeps foreign files, and follows no symbolic link', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'quick')
  await untilOver(pair, target)
  const directory = directoryOf(pair)
  const [torn, loose, linked, alone, moved] = [1, 2, 3, 4, 5].map(() => randomBytes(32).toString('hex'))
  const secret = join(pair.responder.dir, 'secret')
  await writeFile(secret, 'do not touch', { mode: 0o600 })
  const own = (await readdir(directory)).find((name) => name.endsWith('.run'))!
  const record = await readFile(join(directory, own))
  await pair.restart(async () => {
    await writeFile(join(directory, `${torn}.run`), record.subarray(0, 50), { mode: 0o600 })
    await writeFile(join(directory, `${torn}.out`), 'x', { mode: 0o600 })
    await writeFile(join(directory, `${loose}.run`), record, { mode: 0o644 })
    await symlink(secret, join(directory, `${linked}.run`))
    await writeFile(join(directory, `${alone}.out`), 'x', { mode: 0o600 })
    await writeFile(join(directory, `${moved}.run`), record, { mode: 0o600 })
    await writeFile(join(directory, `.${own}.0123456789ab.tmp`), 'x', { mode: 0o600 })
    await writeFile(join(directory, 'of-a-later-release'), 'x', { mode: 0o600 })
  })
  assert.deepEqual((await readdir(directory)).toSorted(), [own.replace('.run', '.out'), own, 'of-a-later-release'].toSorted())
  assert.equal(await readFile(secret, 'utf8'), 'do not touch')
  assert.equal((await pair.detached.state(target, never())).state, 'ended')
})

/** The output file of the only run of a pair. */
const outputOf = async (pair: ExecPair): Promise<string> => {
  const directory = directoryOf(pair)
  return join(
    directory,
    (await readdir(directory)).find((name) => name.endsWith('.out'))!,
  )
}

/** Checks that the answer to one query already contains the error. */
const isTold = async (pair: ExecPair, target: DetachedTarget, from: number): Promise<void> => {
  const asked = pair.channels.length
  const sink = new DetachedMemory()
  await assert.rejects(
    pair.detached.attach(target, from, sink, never()),
    (error) => isAppError(error, 'conflict') && /cannot read/.test(error.message) && /try again/.test(String(error.data['next'])),
  )
  assert.deepEqual([pair.channels.length - asked, sink.text('stdout')], [1, ''])
}

test('an output file that is a link, readable by others, or missing is refused at once', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'quick')
  const { bytes_kept } = await untilOver(pair, target)
  const out = await outputOf(pair)
  await chmod(out, 0o644)
  for (const from of [0, 2]) await isTold(pair, target, from)
  await rm(out)
  for (const from of [0, 2]) await isTold(pair, target, from)
  await symlink('/etc/hostname', out)
  for (const from of [0, 2]) await isTold(pair, target, from)
  // The result of the run is in its record.
  const { outcome } = await pair.detached.attach(target, bytes_kept, new DetachedMemory(), never())
  assert.deepEqual([outcome?.code, outcome?.incomplete], [7, false])
})

test('a shortened output file fails each attach at once, even during the run', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  await soon(async () => (await pair.detached.state(target, never())).bytes_kept > 0)
  await truncate(await outputOf(pair), 1)
  for (const from of [0, 2]) await isTold(pair, target, from)
  await pair.detached.cancel(target, never())
})

test('a refused run leaves no file or descriptor, even if its output is still being written', async (t) => {
  const dataDir = await tempDir(t)
  const runs = await opened(t, dataDir)
  const kept = runs.admit(initOf(1), false)
  assert.ok(typeof kept === 'object')
  await kept.open(writer)
  kept.note(new Uint8Array([1]))
  const exit = exitFrame({}, 'spawn_failed')
  // The requester receives the refusal after the files are gone, so that it may repeat the request at once.
  const told = kept.begun.then(async () => [runs.find(kept.name), await readdir(join(dataDir, 'detached'))])
  await kept.finish(exit)
  assert.deepEqual(await told, [null, []])
  await runs.expire(kept)
  await kept.settled()
  assert.deepEqual([await readdir(join(dataDir, 'detached')), kept.refused, kept.exit], [[], exit, exit])
  const descriptors = await readdir('/proc/self/fd')
  const held = await Promise.all(descriptors.map(async (fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')))
  assert.deepEqual(
    held.filter((path) => path.startsWith(dataDir)),
    [],
  )
})

for (const [title, began] of [
  ['waited', (kept: DetachedRunRecord) => kept.waiting()],
  ['ran', (kept: DetachedRunRecord) => kept.started(1_000)],
] as const)
  test(`a run that ${title} is kept with any result`, async (t) => {
    const dataDir = await tempDir(t)
    const runs = await opened(t, dataDir)
    const kept = runs.admit(initOf(1), title === 'waited')
    assert.ok(typeof kept === 'object')
    await kept.open(writer)
    began(kept)
    await kept.finish(exitFrame({}, 'approval_denied'))
    assert.deepEqual([runs.find(kept.name), kept.record.state, kept.refused], [kept, 'ended', null])
    assert.equal((await readdir(join(dataDir, 'detached'))).length, 2)
  })

test('a directory that others may enter prevents the start of the executor process', async (t) => {
  const dir = await tempDir(t)
  await mkdir(join(dir, 'detached'), { mode: 0o755 })
  const runs = new DetachedRunStore({ clock: new ManualClock(), log: silent, ...ALONE }, { dataDir: dir })
  await assert.rejects(runs.load(), (error) => isAppError(error, 'loose_permissions'))
})

/** A name that belongs to no run. */
const OTHER = 'c'.repeat(64)

test('files that a start cannot remove are logged and do not prevent it', async (t) => {
  const dir = await tempDir(t)
  const names = [`${'a'.repeat(64)}.run`, `${'b'.repeat(64)}.out`]
  // A directory cannot be removed in the way of a file.
  for (const name of [...names, `${OTHER}.out`]) await mkdir(join(dir, 'detached', name), { recursive: true, mode: 0o700 })
  const nothing = { file_bytes: 0, stdout_kept: 0, stderr_kept: 0, dropped: 0, ended_at_ms: null, notes: [], exit: null }
  const record = detachedRecord.encode({ version: 1, ...initOf(1), state: 'running', ...nothing })
  await writeFile(join(dir, 'detached', `${OTHER}.run`), record, { mode: 0o600 })
  const said: string[] = []
  const log: Logger = { ...silent, warn: (...words: readonly unknown[]) => void said.push(JSON.stringify(words)) }
  await opened(t, dir, { log })
  assert.ok(names.every((name) => said.some((text) => text.includes(name) && text.includes('and stay'))))
  assert.ok(said.some((text) => text.includes('could not be removed')))
})

test('a symbolic link at the name of the output file prevents the run', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const request_id = '0192d3a0-1111-7222-8333-444455556666'
  const { own } = pair.requester
  const name = keptName(own.signer.agentId, own.machine.machineId, request_id)
  const victim = join(pair.responder.dir, 'victim')
  await writeFile(victim, 'as it was')
  await assert.rejects(stat(directoryOf(pair)), { code: 'ENOENT' }, 'made where one is kept, and not before')
  await mkdir(directoryOf(pair), { mode: 0o700 })
  await symlink(victim, join(directoryOf(pair), `${name}.out`))
  await assert.rejects(begin(pair, 'waits', { request_id }), /spawn_failed/)
  assert.equal(await readFile(victim, 'utf8'), 'as it was')
  assert.deepEqual(await readdir(directoryOf(pair)), [])
})

const AGENT = 'a1'.repeat(32)
const MACHINE = 'b2'.repeat(32)
const initOf = (n: number, keep_bytes = 10, agent_id = AGENT) => ({
  request_id: `0192d3a0-1111-7222-8333-${n.toString(16).padStart(12, '0')}`,
  agent_id,
  machine_id: MACHINE,
  content_sha256: new Uint8Array(32),
  request_sha256: new Uint8Array(32),
  keep_bytes,
})

test('the number of kept runs and their reserved bytes are limited per agent and in total', async (t) => {
  const runs = await opened(t, await tempDir(t))
  for (let n = 0; n < MAX_DETACHED_PER_AGENT; n += 1) assert.equal(typeof runs.admit(initOf(n), false), 'object')
  assert.match(String(runs.admit(initOf(999), false)), /keeps 256 detached runs of this agent/)
  const OTHERS = ['c1', 'c2', 'c3', 'c4'].map((byte) => byte.repeat(32))
  assert.match(String(runs.admit(initOf(0, MAX_DETACHED_BYTES_PER_AGENT + 1, OTHERS[0]), false)), /of this agent already reserve 0 bytes/)
  const kept = OTHERS.slice(0, 3).map((agent) => runs.admit(initOf(0, MAX_DETACHED_BYTES_PER_AGENT, agent), false))
  assert.ok(kept.every((one) => typeof one === 'object'))
  assert.match(
    String(runs.admit(initOf(0, MAX_DETACHED_BYTES_PER_AGENT, OTHERS[3]), false)),
    /already reserve 0 bytes on this machine, of \d+/,
  )
  assert.equal(typeof runs.admit(initOf(0, 1_000, OTHERS[3]), false), 'object')
})

const agentOf = (n: number): string => n.toString(16).padStart(64, '0')

test('an agent can keep its minimum of runs even if other agents keep all that they may', async (t) => {
  const runs = await opened(t, await tempDir(t))
  const held = Array.from({ length: 40 }, (_, agent) => {
    let count = 0
    while (typeof runs.admit(initOf(count, 0, agentOf(agent)), false) === 'object') count += 1
    return count
  })
  assert.ok(held.reduce((sum, one) => sum + one, 0) >= MAX_DETACHED_RUNS)
  assert.deepEqual([held[0], held.at(-1)], [MAX_DETACHED_PER_AGENT, LEAST_DETACHED_PER_AGENT])
  for (let n = 0; n < LEAST_DETACHED_PER_AGENT; n += 1) assert.equal(typeof runs.admit(initOf(n, 0), false), 'object')
  assert.match(String(runs.admit(initOf(999, 0), false)), /4 detached runs of this agent, of \d+/)
})

test('an agent can keep its minimum of bytes even if other agents keep all that they may', async (t) => {
  const runs = await opened(t, await tempDir(t))
  const [least, smallest] = [LEAST_DETACHED_BYTES_PER_AGENT, LEAST_DETACHED_BYTES_PER_AGENT / 4]
  const held = Array.from({ length: 8 }, (_, agent) => {
    let bytes = 0
    for (let size = MAX_DETACHED_BYTES_PER_AGENT; size >= smallest;) {
      if (typeof runs.admit(initOf(bytes, size, agentOf(agent)), false) === 'object') bytes += size
      else size /= 2
    }
    return bytes
  })
  assert.deepEqual([held[0], held.at(-1)], [MAX_DETACHED_BYTES_PER_AGENT, least])
  assert.equal(typeof runs.admit(initOf(1, least), false), 'object')
  assert.match(String(runs.admit(initOf(2, 1), false)), /already reserve \d+ bytes on this machine, of \d+/)
})

test('an active run reserves its limit plus frame heads, and an ended run counts its file size', async (t) => {
  const runs = new DetachedRunStore({ clock: new ManualClock(), log: silent, ...ALONE }, { dataDir: await tempDir(t) })
  t.after(() => runs.stop())
  const kept = runs.admit(initOf(1, 100), false)
  assert.ok(typeof kept === 'object')
  await kept.open(writer)
  assert.equal(kept.heldBytes, 100)
  for (const stream of ['stdout', 'stderr', 'stdout'] as const) kept.push(stream, Buffer.from('x'))
  await soon(() => kept.written.file === 9)
  assert.equal(kept.heldBytes, 106)
  await kept.finish(null)
  assert.equal(kept.heldBytes, 9)
  await kept.expire()
  assert.equal(kept.heldBytes, 0)
})

test('an ended run is forgotten after a day, once this is logged, and its ID seven days later', async (t) => {
  const clock = new ManualClock()
  const dataDir = await tempDir(t)
  const forgotten: string[] = []
  let writable = true
  const open = async (): Promise<DetachedRunStore> => {
    const write = async ({ request_id }: { request_id: string }): Promise<boolean> => {
      if (writable) forgotten.push(request_id)
      return writable
    }
    return opened(t, dataDir, { clock, forgotten: write })
  }
  const runs = await open()
  const kept = runs.admit(initOf(1), false)
  assert.ok(typeof kept === 'object')
  await kept.open(writer)
  kept.push('stdout', Buffer.from('x'))
  await kept.finish(null)
  const name = keptName(AGENT, MACHINE, kept.record.request_id)
  clock.hold(DETACHED_KEPT_MS - 1)
  assert.equal((await open()).find(name)?.record.state, 'lost')
  clock.hold(1)
  // A run is not forgotten before the journal has the line, however late that is.
  writable = false
  assert.equal((await open()).find(name)?.record.state, 'lost')
  clock.jump(DETACHED_REMEMBERED_MS)
  assert.equal((await open()).find(name)?.record.state, 'lost')
  assert.deepEqual((await readdir(join(dataDir, 'detached'))).map((file) => file.slice(64)).toSorted(), ['.out', '.run'])
  clock.jump(-DETACHED_REMEMBERED_MS)
  writable = true
  assert.equal((await open()).find(name)?.record.state, 'expired')
  assert.deepEqual(
    [forgotten, (await readdir(join(dataDir, 'detached'))).map((file) => file.slice(64))],
    [[kept.record.request_id], ['.run']],
  )
  // A crash before the removal of the output leaves this file.
  await writeFile(join(dataDir, 'detached', `${name}.out`), 'x', { mode: 0o600 })
  await open()
  assert.deepEqual(await readdir(join(dataDir, 'detached')), [`${name}.run`])
  clock.hold(DETACHED_REMEMBERED_MS)
  assert.equal((await open()).find(name), null)
  assert.deepEqual(await readdir(join(dataDir, 'detached')), [])
})

test('a clock that is set while the executor process runs does not change how long runs are kept', async (t) => {
  for (const ms of [2 * DETACHED_KEPT_MS, -2 * DETACHED_KEPT_MS]) {
    const clock = new ManualClock()
    const dataDir = await tempDir(t)
    const ended = (await opened(t, dataDir, { clock })).admit(initOf(1), false)
    assert.ok(typeof ended === 'object')
    await ended.open(writer)
    await ended.finish(null)
    // One run ended before this start, and one ends after it.
    const runs = await opened(t, dataDir, { clock })
    const kept = runs.admit(initOf(2), false)
    assert.ok(typeof kept === 'object')
    await kept.open(writer)
    await kept.finish(null)
    const states = (): unknown[] => [ended, kept].map(({ name }) => runs.find(name)?.record.state)
    const look = async (): Promise<void> => {
      await soon(() => clock.pending > 1)
      await clock.advance(60_000)
      await soon(() => clock.pending > 1)
    }
    clock.jump(ms)
    await look()
    assert.deepEqual([states(), kept.frame().kept_for_ms], [['lost', 'lost'], DETACHED_KEPT_MS - 60_000])
    clock.hold(DETACHED_KEPT_MS)
    await look()
    assert.deepEqual(states(), ['expired', 'expired'])
  }
})

test('after a crash, a waiting run never began and an approved one is lost', async (t) => {
  const dataDir = await tempDir(t)
  const open = async () => opened(t, dataDir)
  const runs = await open()
  const [waiting, allowed] = await Promise.all(
    [1, 2].map(async (n) => {
      const kept = runs.admit(initOf(n), true)
      assert.ok(typeof kept === 'object')
      await kept.open(writer)
      return kept
    }),
  )
  assert.equal(await allowed!.approved(), true)
  const next = await open()
  const found = [waiting, allowed].map((kept) => next.find(kept!.name)?.record)
  assert.deepEqual(
    found.map((record) => [record?.state, record?.exit?.length ?? 0]),
    [
      ['ended', exitFrame().length],
      ['lost', 0],
    ],
  )
  for (const kept of [waiting, allowed]) await kept!.finish(null)
})

test('a truncated record is refused', () => {
  const nothing = { ended_at_ms: null, file_bytes: 0, stdout_kept: 0, stderr_kept: 0, dropped: 0, notes: [], exit: null }
  const bytes = detachedRecord.encode({ version: 1, ...initOf(1), state: 'running', ...nothing })
  assert.equal(detachedRecord.decode(bytes).state, 'running')
  for (let at = 0; at < bytes.length; at += 1)
    assert.throws(
      () => detachedRecord.decode(bytes.subarray(0, at)),
      (error) => isAppError(error, 'malformed'),
    )
})

test('a run whose output cannot be removed is logged once, blocks no other, and is removed later', async (t) => {
  const clock = new ManualClock()
  const dataDir = await tempDir(t)
  const forgotten: string[] = []
  const write = async ({ request_id }: { request_id: string }): Promise<boolean> => forgotten.push(request_id) > 0
  const runs = await opened(t, dataDir, { clock, forgotten: write })
  const [stuck, other] = [runs.admit(initOf(1), false), runs.admit(initOf(2), false)]
  assert.ok(typeof stuck === 'object' && typeof other === 'object')
  for (const kept of [stuck, other]) {
    await kept.open(writer)
    kept.push('stdout', Buffer.from('x'))
    await kept.finish(null)
  }
  const output = join(dataDir, 'detached', `${stuck.name}.out`)
  await rm(output)
  await mkdir(output)
  clock.hold(DETACHED_KEPT_MS)
  // The next check is scheduled when the previous one is complete.
  const look = async (): Promise<void> => {
    await soon(() => clock.pending > 0)
    await clock.advance(60_000)
  }
  await look()
  await soon(() => other.record.state === 'expired')
  await look()
  await soon(() => forgotten.length === 2)
  assert.deepEqual([stuck.record.state, stuck.heldBytes], ['lost', 3])
  await rmdir(output)
  await writeFile(output, '')
  await look()
  await soon(() => stuck.record.state === 'expired')
  assert.deepEqual(forgotten, [stuck.record.request_id, other.record.request_id])
})

test('a start recognises a forgotten run whose record could not be updated', async (t) => {
  const dataDir = await tempDir(t)
  const open = async () => opened(t, dataDir)
  const kept = (await open()).admit(initOf(1), false)
  assert.ok(typeof kept === 'object')
  await kept.open(writer)
  kept.started(1_000)
  await kept.finish(exitFrame())
  await rm(join(dataDir, 'detached', `${kept.name}.out`))
  for (let start = 1; start <= 2; start += 1) assert.equal((await open()).find(kept.name)?.record.state, 'expired')
})

test('a query for the result of a run reads no output before its end', async (t) => {
  const dataDir = await tempDir(t)
  const open = async () => opened(t, dataDir)
  const kept = (await open()).admit(initOf(1, 100), false)
  assert.ok(typeof kept === 'object')
  await kept.open(writer)
  for (const stream of ['stdout', 'stderr'] as const) kept.push(stream, Buffer.from('12345'))
  kept.started(1_000)
  await kept.finish(exitFrame({ stdout: 5, stderr: 5 }))
  // A store that was just opened has no index of offsets yet.
  const found = (await open()).find(kept.name)!
  for (const [from, file] of [
    [10, 14],
    [9, 0],
  ] as const) {
    const reader = found.reader(from)
    assert.equal(reader.place.file, file)
    assert.deepEqual((await reader.skipTo(from, found.written.file)).before, { file: from === 10 ? 14 : 7, stdout: 5, stderr: from - 5 })
    await reader.close()
  }
})

test('if too many forgotten IDs are remembered, the agent with the most loses its oldest', async (t) => {
  const [few, many] = ['c1'.repeat(32), 'c2'.repeat(32)] as const
  const dataDir = await tempDir(t)
  const clock = new ManualClock()
  await mkdir(join(dataDir, 'detached'), { mode: 0o700 })
  const nothing = { file_bytes: 0, stdout_kept: 0, stderr_kept: 0, dropped: 0, notes: [], exit: null }
  const forgotten = async (n: number, agent: string): Promise<string> => {
    const init = initOf(n, 10, agent)
    const name = keptName(agent, MACHINE, init.request_id)
    const record = detachedRecord.encode({ version: 1, ...init, state: 'expired', ended_at_ms: clock.now() - 1_000 + n, ...nothing })
    await writeFile(join(dataDir, 'detached', `${name}.run`), record, { mode: 0o600 })
    return name
  }
  const own = [await forgotten(1, few), await forgotten(2, few)]
  const others: string[] = []
  for (let n = 0; n < 5; n += 1) others.push(await forgotten(3 + n, many))
  const runs = await opened(t, dataDir, { clock }, 4)
  assert.deepEqual(
    [...own, ...others].map((name) => runs.find(name)?.record.state),
    ['expired', 'expired', undefined, undefined, undefined, 'expired', 'expired'],
  )
})

test('a stop of the daemon ends a detached run and keeps its result', async (t) => {
  const pair = await execPair(t, { scripts: SCRIPTS, entryKeys: DETACH_KEYS })
  const { target } = await begin(pair, 'waits')
  const sink = new DetachedMemory()
  const attached = pair.detached.attach(target, 0, sink, never())
  await soon(() => sink.bytes.length > 0)
  await pair.restart()
  const { outcome } = await attached
  assert.deepEqual([outcome?.signal, outcome?.warnings], [15, ['daemon_stopping']])
  assert.deepEqual((await pair.detached.state(target, never())).state, 'ended')
})
