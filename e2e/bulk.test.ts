import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'

import { isRunning, MeshOfDaemons, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

const MIB = 1024 * 1024
const MAX_GROWTH = 16 * MIB

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let small: Buffer
let smallFile: string
let largeFile: string
let largeHash: string

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex')

/**
 * Sizes that leave different remainders in the flow-control window and in pipes, so that the program ends while its last bytes still wait.
 */
const SIZES = Array.from({ length: 16 }, (_item, at) => 2_300_000 + 100_000 * at)

const CAPS = `max_concurrent_per_agent = 16\nmax_concurrent_total = 16\nmax_stdin_bytes = ${96 * MIB}\nmax_stdout_bytes = ${96 * MIB}\nwarn_stdout_bytes = ${96 * MIB}\n`

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  small = randomBytes(10 * MIB)
  const large = randomBytes(64 * MIB)
  largeHash = sha256(large)
  ;[smallFile, largeFile] = [join(mesh.root, 'small'), join(mesh.root, 'large')]
  await writeFile(smallFile, small)
  await writeFile(largeFile, large)
  await alice.start()
  await bob.writeAcl(
    [
      {
        agent: alice,
        commands: [
          ['cat'],
          ['cat', smallFile],
          ['cat', largeFile],
          ['sha256sum'],
          ['head', '-c', '<INT>'],
          ...SIZES.map((size) => ['head', '-c', String(size), '/dev/zero']),
          ['echo', '<INT>'],
        ],
      },
    ],
    CAPS,
  )
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
})

after(async () => mesh.stop())

const assertFree = async (): Promise<void> => {
  await until('the slot is free', async () => (await bob.diagnostics()).active_sessions === 0)
}

test('10 MiB of random stdin from a pipe arrive unchanged', async () => {
  const result = await alice.exec(bob, ['sha256sum'], ['--stdin-file', '-'], { stdin: small })
  assert.equal(result.status, 0, result.stderr)
  assert.equal(result.stdout.toString(), `${sha256(small)}  -\n`)
})

test('10 MiB of random bytes come back unchanged from stdin to stdout', async () => {
  const result = await alice.exec(bob, ['cat'], ['--stdin-file', smallFile])
  assert.equal(result.status, 0, result.stderr)
  assert.equal(sha256(result.stdout), sha256(small))
})

test('64 MiB of random stdout arrive unchanged if the limit is raised', async () => {
  const result = await alice.exec(bob, ['cat', largeFile])
  assert.equal(result.status, 0, result.stderr)
  assert.equal(result.stdout.length, 64 * MIB)
  assert.equal(sha256(result.stdout), largeHash)
})

test('an empty stdin arrives as an empty stdin', async () => {
  const result = await alice.exec(bob, ['sha256sum'], ['--stdin-file', '-'], { stdin: new Uint8Array() })
  assert.equal(result.stdout.toString(), `${sha256(new Uint8Array())}  -\n`)
})

test('a command that does not read all of its stdin keeps its own exit status', async () => {
  const result = await alice.exec(bob, ['head', '-c', '3'], ['--stdin-file', smallFile])
  assert.equal(result.status, 0, result.stderr)
  assert.deepEqual(result.stdout, small.subarray(0, 3))
})

test('a reader that closes the pipe early ends the command quietly', async () => {
  const running = alice.startCli(['exec', 'bob', '--', 'cat', largeFile], { unread: true })
  await new Promise((resolve) => running.child.stdout?.once('readable', resolve))
  running.child.stdout?.destroy()
  const result = await running.finished
  assert.equal(result.status, 128 + 13)
  assert.equal(result.stderr, '')
  await assertFree()
})

/** PID of the child of the current run. */
const childPid = async (): Promise<number> =>
  until('the command runs', async () => {
    const lines = await bob.journal()
    const started = lines.findLast((line) => line.event === 'started')
    return lines.some((line) => line.event === 'exit' && line.request_id === started?.request_id) ? null : Number(started?.['pid'])
  })

const bytesWritten = async (pid: number): Promise<number> => Number(/^wchar: (\d+)$/m.exec(await readFile(`/proc/${pid}/io`, 'utf8'))?.[1])

test('a reader that stops reading stops the child, and neither daemon grows by 16 MiB', async (t) => {
  // First runs the same output at full speed, so that heap that the garbage collector keeps for it is not counted as growth.
  for (let i = 0; i < 3; i++) assert.equal((await alice.exec(bob, ['cat', largeFile])).status, 0)
  const before = [await alice.memory(), await bob.memory()] as const
  const running = alice.startCli(['exec', 'bob', '--', 'cat', largeFile], { unread: true })
  t.after(() => running.child.kill('SIGKILL'))
  const pid = await childPid()
  let written = -1
  await until('the child has to wait', async () => {
    const now = await bytesWritten(pid)
    await sleep(1000)
    written = await bytesWritten(pid)
    return written > 0 && written === now
  })
  assert.ok(isRunning(pid))
  assert.ok(written < 32 * MIB, `${written} bytes were taken from the child`)
  const growth = [(await alice.memory()) - before[0], (await bob.memory()) - before[1]]
  assert.ok(
    growth.every((bytes) => bytes < MAX_GROWTH),
    `alice and bob grew by ${growth.map((bytes) => (bytes / MIB).toFixed(1)).join(' and ')} MiB`,
  )
  // After the reader continues, the output goes on, and no byte was dropped in between.
  const hash = createHash('sha256')
  for await (const chunk of running.child.stdout ?? []) hash.update(chunk as Buffer)
  assert.equal((await running.finished).status, 0)
  assert.equal(hash.digest('hex'), largeHash)
  await assertFree()
})

const isOfZeros = (lines: Awaited<ReturnType<TestDaemon['journal']>>, id: unknown): boolean =>
  lines.some((line) => line.event === 'request' && line.request_id === id && String(line['argv']).endsWith('/dev/zero'))

test('a reader that pauses until long after the command has ended loses no output', async (t) => {
  const readers = SIZES.map((size) => alice.startCli(['exec', 'bob', '--', 'head', '-c', String(size), '/dev/zero'], { unread: true }))
  t.after(() => readers.forEach(({ child }) => child.kill('SIGKILL')))
  const state = async (): Promise<string> => {
    const lines = await bob.journal()
    const started = lines.filter((line) => line.event === 'started' && isOfZeros(lines, line.request_id))
    const ended = ({ request_id }: (typeof lines)[number]): boolean =>
      lines.some((line) => line.event === 'exit' && line.request_id === request_id)
    return started.map((line) => (ended(line) ? 'ended' : isRunning(Number(line['pid'])) ? 'waits' : 'gone')).join(' ')
  }
  let [before, now] = ['', '']
  await until('each has ended or waits', async () => {
    ;[before, now] = [now, await state()]
    await sleep(1000)
    return now === before && now.split(' ').length === SIZES.length
  })
  assert.match(now, /ended/)
  assert.doesNotMatch(now, /gone/)
  const lengths = await Promise.all(
    readers.map(async ({ child }) => {
      let bytes = 0
      for await (const chunk of child.stdout ?? []) bytes += (chunk as Buffer).length
      return bytes
    }),
  )
  const ends = await Promise.all(readers.map(async ({ finished }) => finished))
  assert.deepEqual(lengths, SIZES)
  assert.deepEqual(
    ends.map(({ status, stderr }) => [status, stderr]),
    SIZES.map(() => [0, '']),
  )
  await assertFree()
})
