import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { runCli } from '../test/support/fake-daemon.ts'
import { MeshOfDaemons, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { Typed } from '../test/support/typed-terminal.ts'

// Commands on a terminal that bob records and that his operators may watch.

const SECRET = 'hunter2-never-kept'
/** A program other than `sh`, without the user's start-up files. */
const BASH = ['bash', '--norc']

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await alice.start()
  const keys = 'discoverable = true\n'
  await bob.writeAcl([
    { agent: alice, keys, commands: [['sh']], terminals: true, commandKeys: 'record = true\nwatch = true' },
    { agent: alice, keys, commands: [BASH], terminals: true },
  ])
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
})

after(async () => mesh.stop())

interface Listed {
  readonly name: string
  readonly bytes: number
  readonly argv: string[]
  readonly agent_id: string
}

const recordings = async (): Promise<Listed[]> =>
  (await bob.json<{ recordings: Listed[] }>('transcripts', 'list', '--terminals')).recordings

/** Request ID of the last run of this program on bob, from his audit log. */
const lastRun = async (program: string): Promise<string> =>
  until('it is in the journal', async () => {
    const request = (await bob.journal()).findLast(({ event, argv }) => event === 'request' && String(argv) === program)
    return request === undefined ? null : String(request['request_id'])
  })

test('the requester is notified of a recording, the audit log has its hash, and it contains no password', async () => {
  const typed = new Typed(alice, ['--', 'sh'])
  typed.type('echo be$((1))gun\n')
  await typed.shows('be1gun')
  assert.match(typed.stderr, /\[x0x: bob records what this command shows, and not what you type\]\r\n/)
  assert.match(typed.stderr, /\[x0x: operators of bob may look on\]\r\n/)
  typed.type('stty -echo; read secret; stty echo; echo len=${#secret}\n')
  await until('it does not echo', async () => {
    typed.type('')
    return typed.stdout.includes('read secret')
  })
  typed.type(`${SECRET}\n`)
  await typed.shows(`len=${SECRET.length}`)
  typed.type('exit 3\n')
  assert.equal(await typed.status, 3)
  const exit = (await bob.journal()).findLast(({ event }) => event === 'exit')
  assert.ok(exit)
  const { name, sha256 } = exit['recording'] as { name: string; sha256: string }
  const path = join(bob.dir, 'recordings', `${name}.cast`)
  const file = await readFile(path)
  assert.equal(createHash('sha256').update(file).digest('hex'), sha256)
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  assert.ok(!file.includes(SECRET))
  assert.equal((await bob.cli(['audit', 'verify'])).status, 0)
  const [listed] = await recordings()
  assert.deepEqual([listed?.name, listed?.argv, listed?.agent_id, listed?.bytes], [name, ['sh'], alice.agentId, file.length])
  assert.match(await bob.ok('transcripts', 'print', '--terminals', name), /^be1gun$/m)
  assert.match(await bob.ok('transcripts', 'play', '--terminals', name, '--speed', '100'), /len=18/)
  assert.equal(await bob.ok('transcripts', 'export', '--terminals', name), file.toString())
  await bob.ok('transcripts', 'remove', '--terminals', name)
  assert.deepEqual(await recordings(), [])
  const gone = await bob.cli(['transcripts', 'print', '--terminals', name])
  assert.match(gone.stderr, /no recording/)
})

test('acl mine says which commands are recorded and watched', async () => {
  const stdout = await alice.ok('acl', 'mine', 'bob')
  assert.match(stdout, /^sh .* yes, recorded, watched/m)
  assert.match(stdout, /^bash .* yes {2}/m)
})

test('an operator can watch a run, the requester is notified once, and other users cannot watch', async () => {
  const typed = new Typed(alice, ['--', 'sh'])
  typed.type('echo se$((1))en\n')
  await typed.shows('se1en')
  const id = await lastRun('sh')
  const watching = bob.startCli(['exec', 'watch', id.slice(0, 23)])
  await watching.printed('se1en')
  await until('the requester is told', () => typed.stderr.includes('[x0x: an operator of bob looks on]'))
  typed.type('echo la$((2))ter\n')
  await watching.printed('la2ter')
  const again = bob.startCli(['exec', 'watch', id])
  await again.printed('la2ter')
  again.child.kill('SIGINT')
  assert.equal((await again.finished).status, 0)
  typed.type('exit 0\n')
  assert.equal(await typed.status, 0)
  const watched = await watching.finished
  assert.equal(watched.status, 0)
  assert.match(watched.stderr, /Exec finished .* code=0/)
  assert.equal(typed.stderr.split('looks on]').length, 2)
  assert.ok(
    (await bob.journal()).some(({ event, kind, request_id }) => event === 'warning' && kind === 'session_watched' && request_id === id),
  )
  // Watching needs the operator key.
  const stranger = await runCli(['--data-dir', alice.dir, 'exec', 'watch', id])
  assert.notEqual(stranger.status, 0)
})

test('a stopped watcher does not block the program', async () => {
  const typed = new Typed(alice, ['--', 'sh'])
  typed.type('echo be$((1))gun\n')
  await typed.shows('be1gun')
  const watching = bob.startCli(['exec', 'watch', await lastRun('sh')])
  await watching.printed('be1gun')
  watching.child.kill('SIGSTOP')
  typed.type('head -c 4000000 /dev/zero | tr "\\0" x; echo do$((3))ne; exit 5\n')
  await typed.shows('do3ne')
  assert.equal(await typed.status, 5)
  watching.child.kill('SIGKILL')
})

test('without watch = true an operator sees no terminal output', async () => {
  const typed = new Typed(alice, ['--', ...BASH])
  typed.type('echo se$((1))en\n')
  await typed.shows('se1en')
  const watching = bob.startCli(['exec', 'watch', await lastRun(String(BASH))])
  await once(watching.child.stderr!, 'data')
  typed.type('exit 0\n')
  assert.equal(await typed.status, 0)
  const { status, stdout } = await watching.finished
  assert.deepEqual([status, stdout.toString().trim()], [0, ''])
  assert.ok(!typed.stderr.includes('x0x:'))
  assert.deepEqual((await bob.journal()).filter(({ kind }) => kind === 'session_watched').length, 2)
})

test('an ACL reload ends runs that must be recorded now, and is refused if it would record less', async () => {
  const typed = new Typed(alice, ['--', ...BASH])
  typed.type('echo se$((1))en\n')
  await typed.shows('se1en')
  const entry = (commandKeys: string) => [
    { agent: alice, commands: [['sh']], terminals: true, commandKeys: 'record = true\nwatch = true' },
    { agent: alice, commands: [BASH], terminals: true, commandKeys },
  ]
  await bob.writeAcl(entry('record = true'))
  process.kill(bob.pid, 'SIGHUP')
  assert.equal(await typed.status, 255)
  assert.match(typed.stderr, /access_revoked/)
  const recorded = new Typed(alice, ['--', ...BASH])
  recorded.type('echo se$((1))en\n')
  await recorded.shows('se1en')
  assert.match(recorded.stderr, /bob records/)
  await bob.writeAcl(entry(''))
  process.kill(bob.pid, 'SIGHUP')
  await until('it is refused', async () => (await bob.journal()).some(({ event, outcome }) => event === 'reload' && outcome === 'refused'))
  recorded.type('exit 4\n')
  assert.equal(await recorded.status, 4)
})
