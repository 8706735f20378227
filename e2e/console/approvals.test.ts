import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { terminalProblem } from '../../src/process/terminal.ts'
import { ConsolePlace, RawClient, type Watched } from '../../test/support/console-place.ts'
import { deskPlace, type DeskPlaceHandle, type DeskPlaceInit } from '../../test/support/desk-place.ts'
import { decide, watching } from '../../test/support/desk-watcher.ts'

// A console whose commands need approval.

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

test('a command of a console waits for an approver, the screen says so, and its reply names the execution mode', OPTIONS, async (t) => {
  const { place, desk, host } = await hostOf(t)
  const { human, next } = await watching(desk)
  const client = asking(place)
  const asked = await next()
  assert.deepEqual([asked.engine, asked.question.door, asked.question.asker], ['x0x console', 'console', { kind: 'local', label: 'Codex' }])
  await host.printed(/Codex needs approval for echo hello/)
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
