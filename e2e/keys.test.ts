import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { loadOrCreateAgentKey } from '../src/identity/agent-key.ts'
import { aliceBobCharlie, MeshOfDaemons, runDaemonCommand, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { response } from '../test/support/rest-server.ts'

// Key operations of an operator. Alice may send requests to bob.

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let restored: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob } = await aliceBobCharlie(mesh, [['echo', '<INT>']]))
})

after(async () => mesh.stop())

const secretOf = async ({ dir }: TestDaemon, name: string): Promise<string> => (await readFile(join(dir, name), 'utf8')).trim()

const statusOf = async (path: string, token: string): Promise<number> => {
  const asked = request({ socketPath: join(alice.dir, 'api.sock'), path, headers: { host: 'localhost', authorization: `Bearer ${token}` } })
  asked.end()
  const answer = await response(asked)
  answer.resume()
  return answer.statusCode ?? 0
}

test('rotate-token replaces a token without a restart, and the old one fails at once, also in open streams', async () => {
  await writeFile(join(alice.dir, 'config.toml'), 'metrics_token = true\n', { mode: 0o600 })
  await alice.restart()
  const [api, metrics] = [await secretOf(alice, 'api-token'), await secretOf(alice, 'metrics-token')]
  const stream = request({
    socketPath: join(alice.dir, 'api.sock'),
    path: '/direct/events',
    headers: { host: 'localhost', authorization: `Bearer ${api}` },
  })
  stream.end()
  const events = await response(stream)
  const ended = new Promise((resolve) => events.resume().once('end', resolve))
  assert.match(await alice.ok('keys', 'rotate-token'), /^replaced: .*api-token; the old one is invalid\n$/)
  await ended
  const renewed = await secretOf(alice, 'api-token')
  assert.notEqual(renewed, api)
  assert.equal((await stat(join(alice.dir, 'api-token'))).mode & 0o777, 0o600)
  assert.deepEqual([await statusOf('/agent', api), await statusOf('/agent', renewed), await statusOf('/metrics', metrics)], [401, 200, 200])
  await alice.ok('keys', 'rotate-token', 'metrics-token')
  assert.deepEqual([await statusOf('/metrics', metrics), await statusOf('/metrics', await secretOf(alice, 'metrics-token'))], [401, 200])
  // A network process that starts later gets the current tokens.
  process.kill(await alice.networkPid(), 'SIGKILL')
  await until('the network half is back', async () => (await statusOf('/agent', renewed).catch(() => 0)) === 200)
  assert.equal(await statusOf('/agent', api), 401)
  const lines = (await secretOf(alice, 'requests.jsonl')).split('\n').map((line) => JSON.parse(line) as Record<string, unknown>)
  assert.deepEqual(
    lines.filter(({ operation }) => operation === 'token_rotate').map(({ code, detail }) => [code, detail]),
    [
      [null, 'api_token'],
      [null, 'metrics_token'],
    ],
  )
  const none = await bob.cli(['keys', 'rotate-token', 'metrics-token'])
  assert.deepEqual([none.status, /metrics_token = true/.test(none.stderr)], [1, true])
  assert.equal((await bob.cli(['keys', 'rotate-token', 'agent-key'])).status, 2)
})

test('a new operator key works for the API and the approval service, and a proof with the old key fails', async () => {
  const file = join(alice.dir, 'operator.key')
  const old = await readFile(file)
  await alice.ok('keys', 'rotate-token', 'operator-key')
  const renewed = await readFile(file)
  assert.notDeepEqual(renewed, old)
  await alice.ok('contacts', 'trust', 'bob', 'known')
  assert.match(await alice.ok('approvals', 'pending'), /no open approval requests/)
  await writeFile(file, old)
  const refused = await alice.cli(['contacts', 'trust', 'bob', 'trusted'])
  assert.match(refused.stderr, /proof is wrong/)
  await writeFile(file, renewed)
})

/** Shell lines of the page docs/keys.md with this name. */
const documented = async (name: string): Promise<string> => {
  const page = await readFile(new URL('../docs/keys.md', import.meta.url), 'utf8')
  const [, lines] = new RegExp(`^\`\`\`sh ${name}\\n([^]*?)^\`\`\`$`, 'm').exec(page) ?? []
  assert.ok(lines, name)
  return lines
}

const shell = (script: string, env: Record<string, string>): void => {
  const { status, stderr } = spawnSync('sh', ['-euc', script], { env: { PATH: process.env['PATH'] ?? '', ...env }, encoding: 'utf8' })
  assert.equal(status, 0, stderr)
}

test('a backup with the commands of the docs restores identity, contacts, labels, groups, permissions and the request log', async () => {
  await alice.ok('contacts', 'label', 'bob', 'role=db')
  await writeFile(join(alice.dir, 'groups.toml'), '[groups]\nprod = ["role=db"]\n', { mode: 0o600 })
  const contacts = await alice.ok('contacts', 'list')
  const was = [alice.agentId, alice.machineId]
  assert.equal((await alice.exec('bob', ['echo', '1'])).status, 0)
  await alice.stop()
  const backup = join(mesh.root, 'x0x.tar.gz')
  shell(await documented('backup'), { DATA: alice.dir, BACKUP: backup })
  assert.equal((await stat(backup)).mode & 0o777, 0o600)
  await rm(alice.dir, { recursive: true })
  restored = mesh.add('restored')
  await rm(restored.dir, { recursive: true, force: true })
  shell(await documented('restore'), { DATA: restored.dir, BACKUP: backup })
  await restored.start()
  assert.deepEqual([restored.agentId, restored.machineId], was)
  assert.equal(await restored.ok('contacts', 'list'), contacts)
  assert.equal(await restored.ok('contacts', 'select', '@prod'), 'bob  role=db\n')
  assert.equal((await restored.exec('bob', ['echo', '2'])).status, 0)
  await restored.stop()
  const verified = await restored.cli(['audit', 'verify', join(restored.dir, 'requests.jsonl')])
  assert.equal(verified.status, 0, verified.stderr)
  const argvs = (await secretOf(restored, 'requests.jsonl'))
    .split('\n')
    .flatMap((line) => (JSON.parse(line) as { argv?: string[] }).argv ?? [])
  assert.deepEqual(argvs, ['echo', '1', 'echo', '2'])
})

test('a pin refuses the agent key on another machine, and after a new pin the ACL denies it', async () => {
  const [from, elsewhere] = [restored, mesh.add('elsewhere')]
  await mkdir(elsewhere.dir, { recursive: true, mode: 0o700 })
  for (const name of ['agent.key', 'contacts.json'])
    await writeFile(join(elsewhere.dir, name), await readFile(join(from.dir, name)), { mode: 0o600 })
  assert.equal((await loadOrCreateAgentKey(elsewhere.dir)).agentId, from.agentId)
  await elsewhere.start()
  assert.notEqual(elsewhere.machineId, from.machineId)
  const refused = await elsewhere.exec('bob', ['echo', '1'])
  assert.equal(refused.status, 255)
  assert.match(refused.stderr, /trust_rejected/)
  await bob.ok('contacts', 'pin', 'alice', elsewhere.machineId)
  const denied = await elsewhere.exec('bob', ['echo', '1'])
  assert.deepEqual([denied.status, /agent_machine_not_in_acl/.test(denied.stderr)], [255, true], denied.stderr)
})

test('keys passed as credentials replace those of the data directory, and the daemon does not start with both', async () => {
  const credentials = join(mesh.root, 'credentials')
  await mkdir(credentials, { mode: 0o700 })
  const sealed = mesh.add('sealed', { env: { CREDENTIALS_DIRECTORY: credentials } })
  await sealed.start()
  const was = [sealed.agentId, sealed.machineId]
  await sealed.stop()
  const names = ['agent.key', 'machine.key']
  for (const name of names) {
    await rename(join(sealed.dir, name), join(credentials, name))
    // Systemd leaves a credential with this mode. The unit can read it through its group or an access control list.
    await chmod(join(credentials, name), 0o440)
  }
  await sealed.start()
  assert.deepEqual([sealed.agentId, sealed.machineId], was)
  await sealed.stop()
  assert.deepEqual(
    (await readdir(sealed.dir)).filter((name) => names.includes(name)),
    [],
  )
  await writeFile(join(sealed.dir, 'agent.key'), await readFile(join(credentials, 'agent.key')), { mode: 0o600 })
  await assert.rejects(sealed.start(), /agent\.key is a credential of this unit, and .* exists too/)
  await sealed.stop()
  await rm(join(sealed.dir, 'agent.key'))
  await chmod(join(credentials, 'agent.key'), 0o444)
  await assert.rejects(sealed.start(), /so other users can access it/)
  await sealed.stop()
})

/**
 * Kills a rotation after it wrote the statement about the new key and before it wrote the key. The agent must keep its old key, and
 * contacts must not follow.
 */
const killsRotation = async (): Promise<void> => {
  const [formerly, key] = [restored.agentId, await readFile(join(restored.dir, 'agent.key'), 'utf8')]
  const script = join(import.meta.dirname, '../test/support/killed-rotation.ts')
  const { signal, stderr } = spawnSync(process.execPath, [script, restored.dir], { encoding: 'utf8' })
  assert.equal(signal, 'SIGKILL', stderr)
  const { successions } = JSON.parse(await readFile(join(restored.dir, 'successions.json'), 'utf8')) as { successions: unknown[] }
  assert.equal(successions.length, 1)
  assert.equal(await readFile(join(restored.dir, 'agent.key'), 'utf8'), key)
  await restored.start()
  assert.equal(restored.agentId, formerly)
  assert.equal((await restored.exec('bob', ['echo', '3'])).status, 0)
  assert.doesNotMatch(await bob.ok('contacts', 'list'), /formerly/)
  await restored.stop()
}

test('an agent gets a new key while its daemon is stopped, contacts follow it, and the ACL must be edited', async () => {
  await mesh.daemons.find(({ name }) => name === 'elsewhere')!.stop()
  await restored.start()
  const running = await restored.cli(['keys', 'rotate', '--yes'])
  assert.deepEqual([running.status, (await restored.cli(['keys', 'rotate'])).status], [1, 2], running.stderr)
  assert.equal((await restored.exec('bob', ['echo', '3'])).status, 0)
  await restored.stop()
  const formerly = restored.agentId
  await killsRotation()
  assert.match(await restored.ok('keys', 'rotate', '--yes'), new RegExp(`^agent [0-9a-f]{64}, formerly ${formerly}\\n`))
  await restored.start()
  assert.notEqual(restored.agentId, formerly)
  // Bob first hears of the new key through the link of this command, which is denied.
  const first = await bob.exec('alice', ['echo', '4'])
  assert.match(first.stderr, /denied .* \(\w+\): /)
  assert.equal((await restored.exec('bob', ['echo', '4'])).status, 255)
  await until('bob has followed', async () =>
    (await bob.ok('contacts', 'list')).includes(`${restored.agentId} (formerly ${formerly.slice(0, 12)}…)`),
  )
  const denied = await restored.exec('bob', ['echo', '5'])
  assert.deepEqual([denied.status, /agent_machine_not_in_acl/.test(denied.stderr)], [255, true], denied.stderr)
  assert.match(await readFile(bob.journalFile, 'utf8'), /"contact_succeed"[^\n]*formerly/)
  assert.ok((await readFile(bob.journalFile, 'utf8')).includes(`agent_id = \\"${restored.agentId}\\"`), 'the line to write')
  const { stdout } = await runDaemonCommand(['--check', '--data-dir', bob.dir, '--exec-acl', bob.aclFile])
  assert.match(stdout, new RegExp(`has a new key[^]*agent_id = "${restored.agentId}"`))
  assert.match(
    await bob.ok('acl', 'check', bob.aclFile),
    new RegExp(`has a new key: alice; write into the file: agent_id = "${restored.agentId}"`),
  )
  await bob.writeAcl([{ agent: restored, commands: [['echo', '<INT>']] }])
  await bob.restart()
  assert.equal((await restored.exec('bob', ['echo', '6'])).status, 0)
  assert.equal((await restored.cli(['audit', 'verify', join(restored.dir, 'requests.jsonl')])).status, 0)
  const own = await restored.ok('audit', 'verify', '--outgoing')
  assert.ok(
    [formerly, restored.agentId].every((agentId) => own.includes(agentId)),
    own,
  )
})
