import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import type { ToExecutor } from '../../src/executor-api/messages.ts'
import { execFrame, type ExecFrame } from '../../src/protocol/wire/exec.ts'
import { STDIN_PIECE_BYTES } from '../../src/protocol/limits/wire.ts'
import { SplitDaemon, type Tap } from '../support/captured-network.ts'
import { MeshOfDaemons, until, type TestDaemon } from '../support/mesh-of-daemons.ts'

// A captured network process is between a real requester and the real executor process. The Request is honest and signed, but the attacker
// chooses the stdin that follows it.

type Stdin = Extract<ExecFrame, { type: 'stdin' }>

const LIMIT = { timeout: 60_000 }
const SIGNED = Buffer.from('SELECT 1;\nSELECT 2;\n')
const EVIL = Buffer.from('DROP TABLE t;\n')

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: SplitDaemon
/** This program writes each byte of stdin to a file at once. */
let keeper = ''

before(async () => {
  mesh = await MeshOfDaemons.create()
  alice = mesh.add('alice')
  bob = new SplitDaemon(join(mesh.root, 'bob'))
  keeper = await mesh.program('keeper', `cat > ${join(mesh.root, 'kept')}; echo whole`)
  await alice.start()
  const acl =
    `[exec]\nenabled = true\naudit_log_path = "${bob.journalFile}"\ndefault_cwd = "/"\nmax_stdin_bytes = 16777216\n` +
    `[[exec.allow]]\nagent_id = "${alice.agentId}"\nmachine_id = "${alice.machineId}"\n[[exec.allow.commands]]\nargv = ["${keeper}"]\n`
  await mkdir(bob.dir, { mode: 0o700 })
  await writeFile(bob.aclFile, acl, { mode: 0o600 })
  await bob.startExecutor()
  await bob.startNetwork()
  await bob.ok('contacts', 'import', (await alice.ok('card')).trim(), '--as', 'alice')
  await bob.ok('contacts', 'trust', 'alice', 'trusted')
  await bob.ok('contacts', 'pin', 'alice', alice.machineId)
  await alice.ok('contacts', 'import', (await bob.ok('card')).trim(), '--as', 'bob')
  await alice.ok('contacts', 'trust', 'bob', 'known')
})

after(async () => {
  await bob.stop()
  await mesh.stop()
})

/** Rewrites each honest stdin frame, one at a time, before the executor process receives it. */
const meddle =
  (change: (frame: Stdin) => readonly Stdin[]) =>
  (message: ToExecutor): readonly ToExecutor[] => {
    if (message.type !== 'run_frame') return [message]
    const frame = execFrame.decode(message.frame)
    if (frame.type !== 'stdin') return [message]
    return change(frame).map((other) => ({ ...message, frame: execFrame.encode(other) }))
  }

/** Returns the bytes that the child received, and the result of the run for its requester. */
const runWith = async (stdin: Uint8Array, rewrite: NonNullable<Tap['rewrite']>) => {
  const file = join(mesh.root, 'stdin')
  await writeFile(file, stdin)
  await rm(join(mesh.root, 'kept'), { force: true })
  bob.tap.rewrite = rewrite
  const { status, stdout, stderr } = await alice.cli(['exec', 'bob', '--stdin-file', file, '--', keeper])
  bob.tap.rewrite = null
  return { status, stdout: String(stdout), stderr, kept: await readFile(join(mesh.root, 'kept')).catch(() => Buffer.alloc(0)) }
}

/** Does the same for one frame, after the program has started to read. The program receives each sent byte at once. */
const runThen = async (change: (frame: Stdin) => readonly Stdin[]) => {
  const held = Promise.withResolvers<{ run: number; frame: Stdin }>()
  const running = runWith(SIGNED, (message) => {
    const frame = message.type === 'run_frame' ? execFrame.decode(message.frame) : null
    if (message.type !== 'run_frame' || frame?.type !== 'stdin') return [message]
    held.resolve({ run: message.run, frame })
    return []
  })
  const { run, frame } = await held.promise
  await until('the program reads', async () => existsSync(join(mesh.root, 'kept')))
  for (const other of change(frame)) {
    bob.tap.say({ type: 'run_frame', run, frame: execFrame.encode(other) })
    await sleep(200)
  }
  return running
}

test('a program receives no byte of unsigned stdin, whether replaced, cut, extended, reordered or unfinished', LIMIT, async () => {
  const honest = await runThen((frame) => [frame])
  assert.deepEqual([honest.status, honest.stdout, honest.kept], [0, 'whole\n', SIGNED], honest.stderr)
  const padded = Buffer.concat([EVIL, Buffer.alloc(SIGNED.length - EVIL.length, '\n')])
  const attempts: [string, (frame: Stdin) => readonly Stdin[]][] = [
    ['of the same length', (frame) => [{ ...frame, data: padded }]],
    ['before the end', (frame) => [{ ...frame, data: EVIL }]],
    [
      'in two parts',
      (frame) => [
        { ...frame, data: padded.subarray(0, EVIL.length), eof: false },
        { ...frame, seq: 1, data: padded.subarray(EVIL.length) },
      ],
    ],
    [
      'behind what is right so far',
      (frame) => [
        { ...frame, data: SIGNED.subarray(0, 10), eof: false },
        { ...frame, seq: 1, data: EVIL.subarray(0, 10) },
      ],
    ],
    [
      'without an end, and then too much',
      (frame) => [
        { ...frame, data: EVIL, eof: false },
        { ...frame, seq: 1, data: SIGNED, eof: false },
      ],
    ],
    ['longer', (frame) => [{ ...frame, data: Buffer.concat([SIGNED, EVIL]) }]],
    ['in the wrong order', (frame) => [{ ...frame, seq: 1, data: EVIL, eof: false }]],
  ]
  for (const [what, change] of attempts) {
    const { status, kept } = await runThen(change)
    assert.deepEqual([kept.length, status === 0], [0, false], what)
  }
})

test('a program receives only the signed pieces of stdin, in order', LIMIT, async () => {
  const data = randomBytes(3 * STDIN_PIECE_BYTES + 5)
  const honest = await runWith(
    data,
    meddle((frame) => [frame]),
  )
  assert.deepEqual([honest.status, honest.kept.equals(data)], [0, true], honest.stderr)
  let at = 0
  const second = await runWith(
    data,
    meddle((frame) => {
      const inSecond = at >= STDIN_PIECE_BYTES
      at += frame.data.length
      const other = Buffer.from(frame.data)
      if (inSecond) other[0]! ^= 1
      return [{ ...frame, data: other }]
    }),
  )
  assert.match(second.stderr, /stdin/)
  assert.ok(second.kept.equals(data.subarray(0, second.kept.length)))
  assert.ok(second.kept.length <= STDIN_PIECE_BYTES && second.status !== 0)
  const frames: Stdin[] = []
  const again = await runWith(
    data,
    meddle((frame) => {
      // Sends the first piece in place of the second, in frames of the same length.
      frames.push(frame)
      const from = Math.ceil(STDIN_PIECE_BYTES / frames[0]!.data.length)
      return [frames.length > from ? { ...frame, data: frames[frames.length - 1 - from]!.data } : frame]
    }),
  )
  assert.ok(again.kept.equals(data.subarray(0, again.kept.length)))
  assert.ok(again.kept.length <= STDIN_PIECE_BYTES && again.status !== 0)
})
