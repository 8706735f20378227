import assert from 'node:assert/strict'
import { chmod, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { EngineConfigs } from '../../../src/programs/ui/engine-configs.ts'
import { localModes, revokeGrant, takeBackModes } from '../../../src/programs/ui/local-modes.ts'
import type { PageModes } from '../../../src/protocol/page.ts'
import { deskPlace } from '../../support/desk-place.ts'
import { questionOf } from '../../support/approval-request.ts'

const settingsOf = ({ agents }: PageModes, agent: string | null): Record<string, readonly [string, string]> =>
  Object.fromEntries((agents.find((one) => one.agent === agent)?.settings ?? []).map(({ name, value, from }) => [name, [value, from]]))

test('the page shows the source of each setting: the file, the approver or the approvals store', async (t) => {
  const place = await deskPlace(t)
  const path = join(place.paths.dir, 'rexd.toml')
  const text = `
[tools.exec]
host = "gateway"
security = "full"

[[agents.list]]
id = "reviewer"
[agents.list.tools.exec]
ask = "always"

[audit]
enabled = false

[[security.allowed_roots]]
path = ${JSON.stringify(place.paths.dir)}
`
  await writeFile(path, text, { mode: 0o600 })
  await chmod(place.paths.dir, 0o700)
  const configs = new EngineConfigs({ config: path, env: {} })
  const look = async (): Promise<PageModes> => localModes(place.paths, configs)
  const first = await look()
  assert.deepEqual(first.problems, [])
  assert.deepEqual(settingsOf(first, 'reviewer'), {
    host: ['gateway', '[tools.exec] of the file'],
    security: ['allowlist', 'the approvals store, which is stricter'],
    ask: ['always', '[[agents.list]] of the file'],
    ask_fallback: ['deny', 'default'],
  })
  // An agent without an entry in a list has the defaults of the store.
  assert.deepEqual(settingsOf(first, null)['security'], ['allowlist', 'the approvals store, which is stricter'])

  // A mode that the approver sets replaces that of the file until it is removed.
  const human = await place.human()
  const override = { host: 'sandbox', security: null, ask: null, node: null, elevated: null } as const
  await human.setModes('reviewer', override)
  assert.deepEqual(settingsOf(await look(), 'reviewer')['host'], ['sandbox', 'the settings of the session'])
  await takeBackModes(place.paths, 'reviewer')
  // A saved mode is a row of the store, which can only narrow. A session that no file names is listed.
  await human.saveModes('reviewer', { security: 'deny', ask: null })
  await human.setModes('s_1', { ...override, host: null, ask: 'off' })
  const both = await look()
  assert.deepEqual(settingsOf(both, 'reviewer')['security'], ['deny', 'the approvals store, which is stricter'])
  assert.deepEqual(both.others, [{ name: 's_1', modes: 'ask=off', by: 'human:terminal' }])
  await takeBackModes(place.paths, 's_1')
  assert.deepEqual((await look()).others, [])
  // A mode that the approver sets replaces that of the store.
  await human.setModes('reviewer', { ...override, host: null, security: 'full' })
  assert.deepEqual(settingsOf(await look(), 'reviewer')['security'], ['full', 'the settings of the session'])
  await takeBackModes(place.paths, 'reviewer')
  await human.saveModes('reviewer', null)
  assert.deepEqual(settingsOf(await look(), 'reviewer')['host'], ['gateway', '[tools.exec] of the file'])

  // A grant is listed until it is revoked.
  await human.subscribe(({ type, ...rest }) => {
    if (type !== 'question' || !('question_id' in rest)) return
    void human.decide({ question_id: rest.question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_always' })
  })
  await place.engine().ask(questionOf(), new AbortController().signal, () => undefined)
  const [grant] = (await look()).grants
  assert.deepEqual([grant?.argv, grant?.uses_left], [questionOf().argv, null])
  await revokeGrant(place.paths, grant!.id)
  assert.deepEqual((await look()).grants, [])
})

test('without an approval service, the page says so and shows only the settings of the file', async (t) => {
  const place = await deskPlace(t)
  const path = join(place.paths.dir, 'rexd.toml')
  await writeFile(path, `[tools.exec]\n[audit]\nenabled = false\n[[security.allowed_roots]]\npath = ${JSON.stringify(place.paths.dir)}\n`, {
    mode: 0o600,
  })
  await place.stop()
  const { agents, problems } = await localModes(place.paths, new EngineConfigs({ config: path, env: {} }))
  assert.match(problems.join(), /no approval service/)
  assert.deepEqual(agents[0]?.settings[0], { name: 'host', value: 'sandbox', from: 'default' })
})

test('with more files and agents than the page may query, it shows the first and counts the rest', async (t) => {
  const place = await deskPlace(t)
  const directory = join(place.paths.dir, 'x0x', 'mcp')
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const text = `[tools.exec]\n[audit]\nenabled = false\n[[security.allowed_roots]]\npath = ${JSON.stringify(place.paths.dir)}\n`
  for (const name of ['a', 'b', 'c']) await writeFile(join(directory, `${name}.toml`), text, { mode: 0o600 })
  await place.writeStore((store) => {
    store['agents'] = Object.fromEntries(Array.from({ length: 201 }, (_, n) => [`agent-${n}`, {}]))
  })
  const { agents, problems } = await localModes(place.paths, new EngineConfigs({ config: null, env: { XDG_CONFIG_HOME: place.paths.dir } }))
  assert.deepEqual([agents.length, agents.filter(({ agent }) => agent === null).length], [203, 3])
  assert.match(problems.join('; '), /^1 agents of .*a\.toml.*201 agents of .*b\.toml.*201 agents of .*c\.toml/)
})
