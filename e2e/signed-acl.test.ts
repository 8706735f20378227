import assert from 'node:assert/strict'
import { readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { aliceBobCharlie, MeshOfDaemons, runDaemonCommand, type TestDaemon, until } from '../test/support/mesh-of-daemons.ts'

// ACLs that an operator signs, on real daemons. Alice is the operator, bob is a host that names her as a signer, and charlie signs without
// being named.

const OPTIONS = { timeout: 120_000 }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let charlie: TestDaemon
/** The text of bob's ACL, which lists `true` and `echo 42`. */
let text: string
const at = (name: string): string => join(mesh.root, name)

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;({ alice, bob, charlie } = await aliceBobCharlie(mesh, [['true'], ['echo', '42'], ['sleep', '600']]))
  text = await readFile(bob.aclFile, 'utf8')
  await bob.stop()
  await writeFile(join(bob.dir, 'config.toml'), `acl_signers = ["${alice.agentId}"]\n`, { mode: 0o600 })
})

after(async () => mesh.stop())

const only = (...kept: readonly string[]): string =>
  text.replaceAll(/\[\[exec\.allow\.commands\]\]\nargv = \["(\w+)".*\n?/g, (rule, program: string) => (kept.includes(program) ? rule : ''))

/** The text, signed by the agent of a daemon. */
const signed = async (by: TestDaemon, version: number, acl = text): Promise<string> => {
  const file = at('acl.toml')
  await writeFile(file, acl)
  return by.ok('-q', 'acl', 'sign', file, '--version', String(version))
}

const place = async (acl: string): Promise<void> => writeFile(bob.aclFile, acl, { mode: 0o600 })

/** Log lines of bob about reloads of the ACL. */
const reloads = async (): Promise<string[]> => (await bob.log()).split('\n').filter((line) => line.includes('the ACL was'))

/** Writes an ACL file and reloads bob. Returns the log line about the reload. */
const reload = async (acl: string): Promise<string> => {
  const before = (await reloads()).length
  await place(acl)
  process.kill(bob.pid, 'SIGHUP')
  return until('bob has read the ACL', async () => (await reloads()).at(before) ?? null)
}

const acceptedVersion = async (): Promise<unknown> => JSON.parse(await readFile(join(bob.dir, 'acl-version.json'), 'utf8'))['acl_version']

test('a host with acl_signers does not start with an unsigned or altered ACL, or one of another signer', OPTIONS, async () => {
  const bundle = await signed(alice, 5)
  await symlink(bob.aclFile, at('link-exec-acl.toml'))
  for (const [acl, problem] of [
    [text, /exec-acl\.toml: is not signed, and acl_signers requires a signature/],
    [bundle.replace('"42"', '"43"'), /the signature does not fit/],
    [bundle.replaceAll('\n', '\r\n'), /CR LF/],
    [`${bundle}# more\n`, /the signature does not fit/],
    [await signed(charlie, 6), /which acl_signers does not name/],
    [bundle.slice(0, 2000), /the header of the bundle is damaged/],
  ] as const) {
    await place(acl)
    await assert.rejects(bob.start(), problem)
    const check = await runDaemonCommand([...bob.selector, '--check', '--exec-acl', bob.aclFile])
    assert.match(check.stdout, problem)
    assert.notEqual(check.status, 0)
    const own = await bob.cli(['acl', 'check', at('link-exec-acl.toml')], { env: { X0X_EXEC_ACL: bob.aclFile } })
    assert.equal(own.status, 2)
    assert.match(own.stdout.toString(), problem)
    // For an ACL of another host, the signers are given as options.
    const other = await alice.cli(['acl', 'check', bob.aclFile, '--signer', bob.agentId, '--signer', alice.agentId])
    assert.equal(other.status, 2)
    assert.match(other.stdout.toString(), new RegExp(problem.source.replace('acl_signers', '--signer')))
  }
})

test('acl check with --signer requires a signature of that signer', OPTIONS, async () => {
  const file = at('fleet.acl')
  await writeFile(file, await signed(charlie, 6))
  const check = async (...words: string[]): Promise<[number | null, string]> => {
    const { status, stdout, stderr } = await alice.cli(['acl', 'check', file, ...words])
    return [status, `${stdout.toString()}${stderr}`]
  }
  assert.equal((await check())[0], 0)
  assert.equal((await check('--signer', charlie.agentId))[0], 0)
  const [status, text] = await check('--signer', alice.agentId)
  assert.equal(status, 2)
  assert.match(text, new RegExp(`problem .*fleet\\.acl: agent ${charlie.agentId} signed it, which --signer does not name`))
  for (const id of ['', 'charlie', charlie.agentId.slice(0, 8), `${charlie.agentId},${alice.agentId}`]) {
    const [refused, why] = await check(`--signer=${id}`)
    assert.equal(refused, 2)
    assert.match(why, /--signer: .* is not an id/)
  }
})

test('an invalid configuration does not turn off the required signature', OPTIONS, async () => {
  const config = join(bob.dir, 'config.toml')
  const before = await readFile(config, 'utf8')
  await place(text)
  await writeFile(config, `${before}unknown_key = 1\n`)
  const { status, stderr } = await bob.cli(['acl', 'check', bob.aclFile], { env: { X0X_EXEC_ACL: bob.aclFile } })
  await writeFile(config, before)
  assert.equal(status, 2)
  assert.match(stderr, /unknown_key/)
})

test('a daemon starts with a signed ACL, and every acl command reads it', OPTIONS, async () => {
  const signing = await alice.cli(['acl', 'sign', at('acl.toml'), '--version', '7', '--out', bob.aclFile])
  assert.equal(signing.status, 0, signing.stderr)
  assert.match(signing.stderr, new RegExp(`^x0x: signed version 7 by agent ${alice.agentId}\nx0x: on each host, place .*\n$`))
  await bob.start()
  assert.equal((await alice.exec(bob, ['echo', '42'])).stdout.toString(), '42\n')
  assert.equal(await acceptedVersion(), 7)
  const { acl_summary } = await bob.diagnostics()
  assert.deepEqual(acl_summary['signature'], { version: 7, signer: alice.agentId })
  const lines = (await alice.journal()).length
  assert.equal(lines, 0, 'alice has no ACL, so her request log has the signatures')
  assert.match(
    await readFile(join(alice.dir, 'requests.jsonl'), 'utf8'),
    /"operation":"acl_sign".*"detail":"version 7, SHA-256 [0-9a-f]{64}"/,
  )

  const checked = await alice.cli(['acl', 'check', bob.aclFile])
  assert.match(checked.stdout.toString(), new RegExp(`^signed {3}version 7, by agent ${alice.agentId}$`, 'm'))
  assert.deepEqual((await bob.json<{ signature: unknown }>('acl', 'check')).signature, {
    version: 7,
    signer: alice.agentId,
    sha256: (await bob.json<{ signature: { sha256: string } }>('acl', 'check')).signature.sha256,
  })
  const check = await runDaemonCommand([...bob.selector, '--check', '--exec-acl', bob.aclFile])
  assert.match(check.stdout, new RegExp(`version 7, signed by agent ${alice.agentId.slice(0, 8)}`))
  const ids = ['--agent', alice.agentId, '--machine', alice.machineId]
  assert.equal((await bob.cli(['acl', 'explain', ...ids, '--', 'echo', '42'])).status, 0)
  await writeFile(at('plain.toml'), text)
  assert.equal((await bob.cli(['acl', 'diff', bob.aclFile, at('plain.toml')])).status, 0)
  assert.equal((await bob.cli(['acl', 'diff'])).status, 0)
})

test('a reload applies a newer ACL with fewer permissions and ends runs that it does not list', OPTIONS, async () => {
  const sleeping = alice.startCli(['exec', 'bob', '--', 'sleep', '600'])
  await until('the program runs', async () => (await bob.diagnostics()).active_sessions === 1)
  assert.match(await reload(await signed(alice, 8, only('true', 'echo'))), /in force from now on: version 8, signed by agent/)
  assert.equal((await sleeping.finished).status, 255)
  await until('the version is kept', async () => (await acceptedVersion()) === 8)
})

test('a reload refuses an invalid ACL with a reason and keeps the ACL in force', OPTIONS, async () => {
  const narrower = only('echo')
  for (const [acl, why] of [
    [narrower, /is not signed, and acl_signers requires a signature/],
    [await signed(alice, 7, narrower), /has version 7, and this host has accepted version 8/],
    [await signed(alice, 8, narrower), /has version 8, but not the text that was accepted/],
    [await signed(charlie, 9, narrower), /which acl_signers does not name/],
    [(await signed(alice, 9, narrower)).replace('= 9', '= 10'), /the signature does not fit/],
    [(await signed(alice, 9, narrower)).slice(0, 500), /the header of the bundle is damaged/],
    ['', /is not signed|missing/],
    [await signed(alice, 9), /allows more than the one in force, which stays/],
  ] as const) {
    assert.match(await reload(acl), why)
    assert.equal((await alice.exec(bob, ['true'])).status, 0)
    assert.equal(await acceptedVersion(), 8)
  }
})

test('a new daemon does not replace a running one if it cannot start with the ACL', OPTIONS, async () => {
  await place(await signed(alice, 6))
  const replaced = await runDaemonCommand([...bob.selector, '--replace', '--exec-acl', bob.aclFile])
  assert.equal(replaced.status, 2)
  assert.match(replaced.stderr, /has version 6, and this host has accepted version 8/)
  for (const words of [[], [bob.aclFile]]) {
    const { status, stdout } = await bob.cli(['acl', 'check', ...words])
    assert.equal(status, 2)
    assert.match(stdout.toString(), /has version 6, and this host has accepted version 8/)
  }
  assert.equal((await alice.exec(bob, ['true'])).status, 0)
})

test('a start refuses an earlier version of the ACL, and accepts a later one with more permissions', OPTIONS, async () => {
  await bob.stop()
  await assert.rejects(bob.start(), /has version 6, and this host has accepted version 8/)
  await place(await signed(alice, 9))
  await bob.start()
  assert.equal(await acceptedVersion(), 9)
  await bob.restart()
  assert.equal((await alice.exec(bob, ['echo', '42'])).status, 0)
})

test('acl sign checks the ACL first, and requires a later version than the existing file', OPTIONS, async () => {
  const [file, out] = [at('fleet.toml'), at('fleet.acl')]
  await writeFile(file, '[exec]\nenabled = maybe\n')
  const invalid = await alice.cli(['acl', 'sign', file])
  assert.deepEqual([invalid.status, invalid.stdout.length], [2, 0])
  assert.match(invalid.stderr, /fleet\.toml:2:\d+/)
  assert.equal((await alice.cli(['acl', 'sign', at('none')])).status, 2)
  await writeFile(file, text)
  for (const version of ['0', '-1', '1.5', 'x', '9007199254740993'])
    assert.equal((await alice.cli(['acl', 'sign', file, `--version=${version}`])).status, 2, version)
  // The default version is the time. The text in a bundle can be changed and signed again in place.
  await alice.ok('acl', 'sign', file, '--out', out)
  const first = Number(/^# version = (\d{14})$/m.exec(await readFile(out, 'utf8'))?.[1])
  assert.ok(first > 20_260_000_000_000)
  await writeFile(out, `${await readFile(out, 'utf8')}# more\n`)
  assert.equal((await alice.cli(['acl', 'check', out])).status, 2)
  const older = await alice.cli(['acl', 'sign', out, '--out', out, '--version', String(first)])
  assert.equal(older.status, 2)
  assert.match(older.stderr, new RegExp(`Try: --version ${first + 1}`))
  const { acl_version } = await alice.json<{ acl_version: number }>('acl', 'sign', out, '--out', out, '--version', String(first + 1))
  assert.equal(acl_version, first + 1)
  assert.equal((await alice.cli(['acl', 'check', out])).status, 0)
  assert.ok((await readFile(out, 'utf8')).endsWith(`---\n${text}# more\n`))
  assert.equal((await charlie.cli(['--version'])).status, 0)
})

test('a call without an operator proof signs no ACL', OPTIONS, async () => {
  const body = { acl_version: 7, acl_sha256: '0'.repeat(64) }
  await assert.rejects(alice.api.json({ method: 'POST', path: '/acl/sign', body }), { code: 'operator_proof_required' })
})
