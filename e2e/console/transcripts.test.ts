import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { ConsolePlace } from '../../test/support/console-place.ts'

const transcripts = async (place: ConsolePlace, ...words: string[]) => place.begin(['transcripts', ...words], { program: 'x0x' }).ended

/** Contents of all files in the transcript directory, including the journal. */
const everything = async (place: ConsolePlace): Promise<string> => {
  const directory = join(place.dir, 'home', '.rexec')
  const files = (await readdir(directory, { withFileTypes: true })).filter((file) => file.isFile())
  return (await Promise.all(files.map((file) => readFile(join(directory, file.name), 'latin1')))).join('')
}

test('a host that is killed with SIGKILL during a slow command keeps every command that ended', async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host()
  const gate = join(place.dir, 'gate')
  assert.equal(spawnSync('mkfifo', [gate]).status, 0)
  await place.run(['echo', 'first'])
  const slow = place.begin(['--whoami', 'Slow', '--dir', place.dir, '--', 'sh', '-c', `echo slow begins; cat ${gate}`])
  await host.printed(/slow begins/)
  for (const name of ['one', 'two']) await place.rexec(['--whoami', name, '--dir', '/', '--', 'echo', `of ${name}`])
  host.child.kill('SIGKILL')
  await Promise.all([host.ended, slow.ended])
  const { stdout, status } = await transcripts(place, 'print', '--json')
  assert.equal(status, 0)
  const entries = stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as { output: string; whoami: string; waits: boolean; arrival: number })
  assert.deepEqual(
    entries.map(({ whoami, output, waits, arrival }) => [whoami, output, waits, arrival]),
    [
      ['Codex', 'first\n', false, 1],
      ['one', 'of one\n', true, 3],
      ['two', 'of two\n', true, 4],
    ],
  )
  assert.match((await place.rexec(['--list', '10'])).stdout, /^\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d commands=3\n$/)
  assert.match((await transcripts(place, 'search', 'of two')).stdout, /output:1 {2}two {2}of two\n$/)
})

test('values of --env are in no file of a console unless --record-env is set', async (t) => {
  for (const flags of [[], ['--record-env']]) {
    const place = await ConsolePlace.make(t)
    const host = await place.host(['--start-host', ...flags])
    const secret = 's3cret-of-a-caller'
    assert.equal((await place.run(['true'], ['--env', `TOKEN=${secret}`])).status, 0)
    const [entry] = await place.entries(1)
    assert.deepEqual(entry?.envs, { TOKEN: flags.length === 0 ? '[not recorded]' : secret })
    assert.equal((await everything(place)).includes(secret), flags.length > 0)
    host.child.kill('SIGTERM')
    await host.ended
  }
})

test('a transcript is exported with the times of its output, and followed until the next command', async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const gate = join(place.dir, 'gate')
  assert.equal(spawnSync('mkfifo', [gate]).status, 0)
  const run = place.begin(['--whoami', 'Codex', '--dir', '/', '--', 'sh', '-c', `echo before; cat ${gate}; printf '\\033[1mafter'; exit 3`])
  const follower = place.begin(['transcripts', 'follow'], { program: 'x0x' })
  await writeFile(gate, 'between\n')
  assert.equal((await run.ended).status, 3)
  await follower.printed(/after/)
  const name = (await transcripts(place, 'list')).stdout.split(' ')[0]!
  const [header, ...events] = (await transcripts(place, 'export', name)).stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown)
  const { version, width, height } = header as Record<string, number>
  assert.deepEqual([version, width, height], [2, 80, 24])
  const written = (events as [number, string, string][]).map(([, , data]) => data).join('')
  assert.match(written, /\$ sh -c .*before\r\nbetween\r\nafter\r\n.*exit 3/s)
  follower.child.kill('SIGINT')
  assert.equal((await follower.ended).status, 0)
})

test('a host that is killed with SIGKILL while it answers has kept the command', { timeout: 120_000 }, async (t) => {
  const place = await ConsolePlace.make(t)
  for (let round = 0; round < 10; round++) {
    const host = await place.host()
    const client = place.client()
    client.socket.once('data', () => host.child.kill('SIGKILL'))
    client.send(place.request(['echo', `round ${round} ends`]))
    assert.equal((await client.next())?.['output'], `round ${round} ends\n`)
    await host.ended
    assert.match(await everything(place), new RegExp(`"output":"round ${round} ends`))
    client.socket.destroy()
  }
})
