import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { askingMcp, startDesk } from '../../test/support/approvals-place.ts'
import { patient } from '../../test/support/wait-limits.ts'

/** Time within which an agent is denied if no approver is connected. */
const NOBODY_MS = 2_000
const ALLOWLIST = { security: 'allowlist' } as const

const touch = (file: string): { command: string; args: string[] } => ({ command: 'touch', args: [file] })

/** An agent whose commands need approval, and a connected approver. */
const askedOf = async (t: TestContext) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const human = await desk.human()
  return { desk, agent, human }
}

test('an agent asks, an approver sees the whole command and allows it once, and it runs once', async (t) => {
  const { agent, human } = await askedOf(t)
  const file = join(agent.root, 'a b')
  const running = agent.run('exec_status', touch(file))
  const asked = await human.question()
  const { question } = asked
  assert.deepEqual(question.argv, ['touch', file])
  assert.deepEqual([question.asker, question.door], [{ kind: 'local', label: 'reviewer' }, 'mcp'])
  assert.deepEqual(question.target, { host: 'gateway', agent_id: null })
  assert.equal(question.cwd, agent.root)
  assert.ok(question.executable.startsWith('/') && question.why.length > 0)
  assert.ok(!existsSync(file), 'nothing runs before somebody said so')
  await human.decide(asked, 'allow_once')
  assert.equal((await running).success, true)
  assert.ok(existsSync(file))
  // The approval covers one run only.
  const again = agent.run('exec_status', touch(join(agent.root, 'c')))
  await human.decide(await human.question(), 'deny')
  assert.equal((await again).success, false)
  assert.ok(!existsSync(join(agent.root, 'c')))
})

test('an allow_always grant covers exactly one command until it is revoked, and one more argument is asked about', async (t) => {
  const { agent, human } = await askedOf(t)
  const one = touch(join(agent.root, 'one'))
  const running = agent.run('exec_status', one)
  const { grant_id: grant } = await human.decide(await human.question(), 'allow_always')
  assert.equal((await running).success, true)
  assert.equal((await agent.run('exec_status', one)).success, true)
  assert.equal(human.news.filter(({ type }) => type === 'question').length, 1)
  const more = agent.run('exec_status', { ...one, args: [...one.args, join(agent.root, 'two')] })
  await human.decide(await human.question(), 'deny')
  assert.equal((await more).success, false)
  assert.ok(grant !== null)
  await human.desk.revoke(grant)
  const after = agent.run('exec_status', one)
  await human.decide(await human.question(), 'deny')
  assert.equal((await after).success, false)
})

test('without an approval client nothing runs, and the agent gets a denial within two seconds', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', ALLOWLIST)
  const agent = await askingMcp(t, desk)
  const began = performance.now()
  const result = await agent.run('exec_status', touch(join(agent.root, 'x')))
  assert.ok(performance.now() - began < patient(NOBODY_MS))
  assert.equal(result.success, false)
  assert.ok(!existsSync(join(agent.root, 'x')))
})

test('if the last approval client closes while a request waits, the command does not run', async (t) => {
  const { agent, human } = await askedOf(t)
  const running = agent.run('exec_status', touch(join(agent.root, 'x')))
  await human.question()
  human.close()
  assert.equal((await running).success, false)
  assert.ok(!existsSync(join(agent.root, 'x')))
})

test('an approval service that is killed or not running allows nothing, and the denial names the command to start it', async (t) => {
  const { desk, agent, human } = await askedOf(t)
  const running = agent.run('exec_status', touch(join(agent.root, 'x')))
  await human.question()
  const began = performance.now()
  await desk.stop('SIGKILL')
  const result = await running
  assert.ok(performance.now() - began < patient(NOBODY_MS))
  assert.equal(result.denial_reason, 'approval_unavailable')
  const without = await agent.run('exec_status', touch(join(agent.root, 'x')))
  assert.equal(without.denial_reason, 'approval_unavailable')
  assert.match(JSON.stringify(without), /x0x desk/)
  assert.ok(!existsSync(join(agent.root, 'x')))
})
