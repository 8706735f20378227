import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { terminalProblem } from '../../src/process/terminal.ts'
import { ConsolePlace, RawClient, type Watched } from '../../test/support/console-place.ts'
import { deskPlace, type DeskPlaceHandle, type DeskPlaceInit } from '../../test/support/desk-place.ts'
import { decide, watching } from '../../test/support/desk-watcher.ts'
import { soon } from '../../test/support/local-engine.ts'

// A console whose commands a human must allow.

const OPTIONS = { timeout: 60_000, skip: terminalProblem() ?? false }
const ON_HOST = '[tools.exec]\nhost = "gateway"\nsecurity = "allowlist"\n'

const hostOf = async (
  t: TestContext,
  tools = ON_HOST,
  init: DeskPlaceInit = {},
): Promise<{ readonly place: ConsolePlace; readonly desk: DeskPlaceHandle; readonly host: Watched }> => {
  const desk = await deskPlace(t, init)
  const place = await ConsolePlace.make(t)
  const config = join(place.dir, 'modes.toml')
  await writeFile(config, tools, { mode: 0o600 })
  const host = await place.host(['--start-host', '--plain', '--config', config], { env: { X0X_DATA_DIR: desk.paths.dir } })
  return { place, desk, host }
}

const asking = (place: ConsolePlace, more: object = {}): RawClient => {
  const client = new RawClient(place.socket)
  client.send({ whoami: 'Codex', dir: place.dir, exec: ['echo', 'hello'], ...more })
  return client
}

test('a command of a console waits for a human, who sees it there too, and its reply says where it ran', OPTIONS, async (t) => {
  const { place, desk, host } = await hostOf(t)
  const { human, next } = await watching(desk)
  const client = asking(place)
  const asked = await next()
  assert.deepEqual([asked.engine, asked.question.door, asked.question.asker], ['x0x console', 'console', { kind: 'local', label: 'Codex' }])
  await host.printed(/Codex waits for an approval of echo hello/)
  await decide(human, asked, 'allow_once')
  const reply = await client.next()
  assert.deepEqual(
    [reply?.['exit'], reply?.['output'], (reply?.['ran_on'] as { host: string } | undefined)?.host],
    [0, 'hello\n', 'gateway'],
  )
  const refused = asking(place)
  await decide(human, await next(2), 'deny')
  const { exit, error, message } = (await refused.next()) ?? {}
  assert.deepEqual([exit, error, /refused it/.test(String(message))], [127, 'spawn_failed', true])
})

test('who hangs up takes the question of his command back', OPTIONS, async (t) => {
  const { place, desk } = await hostOf(t)
  const { next, settled } = await watching(desk)
  const client = asking(place)
  const { question_id } = await next()
  client.socket.destroy()
  assert.ok(await soon(() => settled.includes(question_id)))
})

test('O7: what is saved for a name narrows what its callers at a console get, whatever else is set for it', OPTIONS, async (t) => {
  const { place, desk } = await hostOf(t, '[tools.exec]\nhost = "gateway"\nsecurity = "full"\nask = "off"\n', { security: 'full' })
  const human = await desk.human()
  const nothing = { host: null, security: null, ask: null, node: null, elevated: null }
  const exit = async (): Promise<unknown> => (await asking(place).next())?.['exit']
  assert.equal(await exit(), 0)
  await human.saveModes('Codex', { security: 'deny', ask: null })
  await human.setModes('Codex', { ...nothing, ask: 'off' })
  assert.equal(await exit(), 127)
  await human.saveModes('Codex', null)
  assert.equal(await exit(), 0)
})

test('a wish narrows, a node is none of a console, and a console without the file refuses wishes', OPTIONS, async (t) => {
  const { place } = await hostOf(t)
  const denied = await asking(place, { security: 'deny' }).next()
  assert.deepEqual([denied?.['exit'], /security is "deny"/.test(String(denied?.['message']))], [127, true])
  const node = await asking(place, { host: 'node' }).next()
  assert.deepEqual([node?.['error'], node?.['message']], ['refused', 'host: one of sandbox, gateway'])
  const plain = await ConsolePlace.make(t)
  await plain.host()
  const wished = await asking(plain, { ask: 'always' }).next()
  assert.match(String(wished?.['message']), /\[tools\.exec\]/)
})
