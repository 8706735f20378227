import assert from 'node:assert/strict'
import { readFile, writeFile } from 'node:fs/promises'
import { test, type TestContext } from 'node:test'

import { systemClock } from '../../../src/base/clock.ts'
import { LocalApi } from '../../../src/clients/daemon.ts'
import { pageSources } from '../../../src/programs/ui/page-sources.ts'
import { restartCommandIn } from '../../../src/supervision/restart-command.ts'
import { runCli } from '../../support/fake-daemon.ts'
import { MeshOfDaemons, runDaemonCommand, type TestDaemon } from '../../support/mesh-of-daemons.ts'

// Runs the ACL commands with real daemons, after the ACL file has changed since the daemon read it.

const TIMEOUT = { timeout: 120_000 }

const pairOf = async (t: TestContext): Promise<{ alice: TestDaemon; bob: TestDaemon }> => {
  const mesh = await MeshOfDaemons.create()
  t.after(async () => mesh.stop())
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await bob.writeAcl([])
  await Promise.all([alice.start(), bob.start()])
  await Promise.all([alice.meet(bob, 'known'), bob.meet(alice, 'trusted')])
  return { alice, bob }
}

const said = async (who: TestDaemon, ...argv: string[]): Promise<{ status: number | null; stdout: string; stderr: string }> => {
  const { status, stdout, stderr } = await who.cli(argv, { env: { X0X_EXEC_ACL: who.aclFile } })
  return { status, stdout: stdout.toString(), stderr }
}

test('explain, check, suggest and diff say that a changed ACL is not in force, and how to apply it', TIMEOUT, async (t) => {
  const { alice, bob } = await pairOf(t)
  assert.equal((await alice.cli(['exec', 'bob', '--', 'df -h'])).status, 255)
  const quoted = await said(bob, 'acl', 'suggest')
  assert.match(quoted.stderr, /^x0x: careful: "df -h" is one word: .* -- df -h$/m)
  assert.match(quoted.stdout, /^# argv = \["df -h"\]$/m)
  assert.match((await said(alice, 'acl', 'mine', 'bob')).stdout, /even if it is not listed: x0x --data-dir \S+ exec bob -- ARGV\.\.\.$/m)
  const denied = await alice.cli(['exec', 'bob', '--', 'df', '-h'])
  assert.equal(denied.status, 255)
  assert.match(
    denied.stderr,
    /^x0x: bob denied "df -h" \(agent_machine_not_in_acl\): .*\n {5}Try, on bob: x0x acl explain --last\n {5}Try, on bob: x0x acl suggest\n$/,
  )

  const last = await said(bob, 'acl', 'explain', '--last')
  assert.equal(last.status, 1)
  assert.match(
    last.stdout,
    /^last denial, \S+: df -h\nrequested by alice \(\w{64}\) on machine \w{64}, request \S+\nreason {3}agent_machine_not_in_acl/,
  )
  assert.match(last.stdout, /^Try: x0x --data-dir \S+ acl suggest --request \S+$/m)
  assert.equal((await said(bob, 'acl', 'explain', '--last', '--agent', 'alice')).stdout, last.stdout)
  const entry = await said(bob, 'acl', 'suggest')
  assert.match(entry.stdout, /^argv = \["df", "-h"\]$/m)

  await bob.writeAcl([{ agent: alice, commands: [['df', '-h']] }])
  const ids = ['--agent', alice.agentId, '--machine', alice.machineId]
  const notInForce = new RegExp(`not in force: x0xd read ${bob.aclFile} at \\S+, and it has changed since`)
  for (const words of [[...ids, '--', 'df', '-h'], ['--last']]) {
    const explained = await said(bob, 'acl', 'explain', ...words)
    assert.equal(explained.status, 1, words.join(' '))
    assert.match(explained.stdout, new RegExp(`^${notInForce.source}\nTry: x0xd .*--replace &\n`))
    assert.match(explained.stdout, /In force now:\ndenied {3}\["df", *"-h"\][^]*After a restart:\nallowed {2}\["df", *"-h"\]/)
  }
  const whole = JSON.parse((await said(bob, '--json', 'acl', 'explain', ...ids, '--', 'df', '-h')).stdout) as Record<string, unknown>
  assert.deepEqual([whole['allowed'], (whole['after_restart'] as { allowed: boolean }).allowed], [false, true])
  assert.equal((await said(bob, 'acl', 'explain', bob.aclFile, ...ids, '--', 'df', '-h')).status, 0, 'a file that is named is judged alone')

  const checked = await said(bob, 'acl', 'check')
  assert.equal(checked.status, 0)
  assert.match(checked.stdout, new RegExp(`^warning +${notInForce.source}; Try: x0xd .*--replace &$`, 'm'))
  const coloured = await runCli([...bob.selector, 'acl', 'check'], { terminal: true, env: { X0X_EXEC_ACL: bob.aclFile } })
  assert.match(coloured.stdout, new RegExp(`^\u001b\\[33mwarning\u001b\\[0m +${notInForce.source}`, 'm'), 'colours are not shown as text')
  const suggested = await said(bob, 'acl', 'suggest')
  assert.deepEqual([suggested.status, suggested.stdout], [1, ''])
  assert.match(suggested.stderr, new RegExp(`already has this command: ${notInForce.source}\n +Try: x0xd `))
  const diff = await said(bob, 'acl', 'diff')
  assert.deepEqual([diff.status, diff.stdout.split(' ')[0]], [4, 'widens'])

  const doctor = await said(bob, 'doctor', 'alice')
  assert.match(doctor.stdout, /^warn +local ACL +not in force: .* it has changed since\n +-> x0xd .*--replace &$/m)
  const instance = { name: null, dataDir: bob.dir }
  const flags = { instance, env: {}, execAcl: null, config: null }
  const page = pageSources({ api: new LocalApi({ instance, url: null, env: {} }), clock: systemClock }, flags)
  const query = { agent_id: alice.agentId, machine_id: alice.machineId, argv: ['df', '-h'] }
  const explained = await page.explain(query, AbortSignal.timeout(10_000))
  assert.equal(explained.outcome, 'denied')
  assert.match(explained.text, /^not in force: [^]*^In force now:$/m)
  const shown = async (): Promise<unknown> => {
    const { source, pairs, problem } = await page.policy(AbortSignal.timeout(10_000))
    return [source, pairs.flatMap(({ commands }) => commands.map(({ argv }) => argv)), problem?.replace(/ at .*/, '') ?? null]
  }
  const changed = `not in force: x0xd read ${bob.aclFile}`
  assert.deepEqual(await shown(), [bob.aclFile, [], changed], 'a command that the daemon does not allow yet is not listed')

  await bob.restart()
  assert.equal((await page.explain(query, AbortSignal.timeout(10_000))).outcome, 'allowed')
  assert.deepEqual(await shown(), [bob.aclFile, [['df', '-h']], null])
  const text = await readFile(bob.aclFile, 'utf8')
  await bob.writeAcl([])
  assert.deepEqual(await shown(), [bob.aclFile, [['df', '-h']], changed], 'a command that the daemon still allows is listed')
  await writeFile(bob.aclFile, text)
  assert.equal((await said(bob, 'acl', 'explain', ...ids, '--', 'df', '-h')).status, 0)
  assert.doesNotMatch((await said(bob, 'acl', 'check')).stdout, /not in force/)
  assert.match((await said(bob, 'acl', 'suggest')).stderr, /already has this command: it is in force/)
  assert.equal((await said(bob, 'acl', 'diff')).status, 0)

  await bob.stop()
  const stopped = await said(bob, 'acl', 'explain', ...ids, '--', 'df', '-h')
  assert.deepEqual([stopped.status, stopped.stderr.includes('x0xd is not running')], [0, true], stopped.stderr)
  assert.match((await said(bob, 'acl', 'explain', '--last')).stdout, /^last denial, [^]*^allowed {2}/m)
})

test('check, explain and doctor say that a changed file must be corrected before a restart if x0xd refuses it', TIMEOUT, async (t) => {
  const { alice, bob } = await pairOf(t)
  const text = await readFile(bob.aclFile, 'utf8')
  const correct = `correct ${bob.aclFile} until x0x .*acl check accepts it, then: x0xd .*--replace &`
  for (const broken of [`${text}\nenabled = maybe\n`, `${text}\n[[exec.allow]]\nagent_id = "a1"\n`]) {
    await writeFile(bob.aclFile, broken)
    const checked = await said(bob, 'acl', 'check')
    assert.equal(checked.status, 2)
    assert.match(checked.stdout, new RegExp(`^refused [^]*^warning +not in force: .*; Try: ${correct}$`, 'm'))
    const explained = await said(bob, 'acl', 'explain', '--agent', alice.agentId, '--machine', alice.machineId, '--', 'df')
    assert.match(explained.stdout, new RegExp(`^Try: ${correct}$`, 'm'))
    assert.match((await said(bob, 'doctor', 'alice')).stdout, new RegExp(`^warn +local ACL +not in force: .*\n +-> ${correct}$`, 'm'))
    assert.match(
      (await runDaemonCommand(['--doctor', ...bob.selector])).stdout,
      new RegExp(` ACL +not in force: .*\n +-> ${correct}$`, 'm'),
    )
  }
  await writeFile(bob.aclFile, `${text}\n# Valid again.\n`)
  assert.match((await said(bob, 'acl', 'check')).stdout, /; Try: x0xd .*--replace &$/m)
})

test('explain --last and suggest answer an unknown agent name with status 255 and a similar name', TIMEOUT, async (t) => {
  const { alice } = await pairOf(t)
  for (const command of [
    ['acl', 'explain', '--last'],
    ['acl', 'suggest'],
  ]) {
    const { status, stderr } = await said(alice, ...command, '--agent', 'bbo')
    assert.equal(status, 255)
    assert.match(stderr, /Did you mean bob\?/)
  }
})

test('the restart command is that of the systemd unit, if the daemon runs in one', () => {
  const of = (group: string, name: string | null = null): string => restartCommandIn(group, { name, dataDir: null })
  assert.equal(of('0::/system.slice/x0xd.service/x0x-daemon\n'), 'sudo systemctl restart x0xd.service')
  assert.equal(of('0::/system.slice/x0xd-executor.service\n'), 'sudo systemctl restart x0xd-executor.service')
  assert.equal(of('12:pids:/x\n1:name=systemd:/system.slice/x0xd.service\n'), 'sudo systemctl restart x0xd.service')
  assert.equal(
    of('0::/user.slice/user-1000.slice/user@1000.service/app.slice/x0xd-user.service\n'),
    'systemctl --user restart x0xd-user.service',
  )
  for (const group of ['', '0::/user.slice/user-0.slice/session-1.scope\n', '0::/system.slice/cron.service\n', '0::/x0xd.service.d/a\n'])
    assert.equal(of(group, 'lab'), 'x0xd --name lab --replace &', group)
})
