import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { chmod, readFile, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../../src/base/errors.ts'
import { parseToml } from '../../../src/base/toml.ts'
import { AclSigning, type AclSigningInit } from '../../../src/policy/mesh/accepted-acl.ts'
import { aclStatement, readAclBundle, signAcl, signableText, verifyAclBundle, writeAclBundle } from '../../../src/policy/mesh/acl-bundle.ts'
import { inspectAcl, loadAcl } from '../../../src/policy/mesh/load-acl.ts'
import { MAX_STDIN_BYTES } from '../../../src/protocol/limits/wire.ts'
import { CARD_DOMAIN } from '../../../src/protocol/wire/card.ts'
import { aclText, entryText } from '../../support/acl-text.ts'
import { agentNumber } from '../../support/agents.ts'
import { tempDir } from '../../support/temp-dir.ts'

const operator = agentNumber(1)
const other = agentNumber(2)
const TEXT = aclText([entryText([['true']])], 'default_cwd = "/"')

const sha256 = (text: string | Uint8Array): Buffer => createHash('sha256').update(text).digest()

const bundleOf = async (text = TEXT, version = 7, signer = operator): Promise<Buffer> => {
  const signature = await signAcl(signer, version, sha256(text))
  return writeAclBundle(Buffer.from(text), { version, signer: signer.agentId, publicKey: signer.publicKey, signature })
}

const BUNDLE = await bundleOf()
const lines = BUNDLE.toString().split('\n')
/** Returns the bundle with one header line replaced. */
const withLine = (at: number, line: string): Buffer => Buffer.from(lines.with(at, line).join('\n'))
const [VERSION, SIGNER, KEY, SIGNATURE] = [2, 3, 4, 5]

const problemOf = async (bytes: Uint8Array): Promise<string> => {
  const verified = await verifyAclBundle(bytes)
  assert.equal(typeof verified, 'string')
  return verified as string
}

test('a bundle is its text below six comment lines, and names its signer and version', async () => {
  assert.deepEqual(await verifyAclBundle(BUNDLE), { version: 7, signer: operator.agentId, sha256: sha256(TEXT).toString('hex') })
  assert.equal(
    lines.slice(0, 7).every((line) => line.startsWith('# ')),
    true,
  )
  assert.equal(lines.slice(7).join('\n'), TEXT)
  const value = parseToml(BUNDLE.toString(), 'a', 'bad_acl').value
  assert.deepEqual(value, parseToml(TEXT, 'a', 'bad_acl').value)
  assert.equal(await verifyAclBundle(Buffer.from(TEXT)), null)
  assert.equal(await verifyAclBundle(Buffer.from('')), null)
})

test('property: each signed text and version can be read again, even if the text itself is a bundle', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.oneof(fc.string({ unit: 'binary' }), fc.constant(BUNDLE.toString())),
      fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
      async (text, version) => {
        const bundle = await bundleOf(text, version)
        assert.deepEqual(await verifyAclBundle(bundle), { version, signer: operator.agentId, sha256: sha256(text).toString('hex') })
        assert.deepEqual(Buffer.from(signableText(bundle) as Uint8Array), Buffer.from(text))
      },
    ),
    { numRuns: 30 },
  )
})

test('property: any changed, cut, inserted or added byte makes a bundle invalid or unsigned', async () => {
  await fc.assert(
    fc.asyncProperty(fc.nat(BUNDLE.length - 1), fc.integer({ min: 1, max: 255 }), fc.integer({ min: 0, max: 3 }), async (at, by, how) => {
      const rest = BUNDLE.subarray(at)
      const changed = [
        Buffer.concat([BUNDLE.subarray(0, at), Buffer.of(BUNDLE[at]! ^ by), rest.subarray(1)]),
        BUNDLE.subarray(0, at),
        Buffer.concat([BUNDLE.subarray(0, at), Buffer.of(by), rest]),
        Buffer.concat([BUNDLE, Buffer.of(by)]),
      ][how]!
      const verified = await verifyAclBundle(changed)
      // A changed first line may leave an unsigned ACL, which a host with signers refuses.
      assert.ok(typeof verified === 'string' || (verified === null && at < lines[0]!.length), `${how} at ${at}`)
    }),
    { numRuns: 300 },
  )
})

test('property: random bytes after the first words are reported as a malformed bundle', async () => {
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 20_000 }), async (bytes) => {
      assert.match(
        await problemOf(Buffer.concat([Buffer.from('# x0x-acl-bundle v'), bytes])),
        /header of the bundle is damaged|CR LF|later x0x/,
      )
    }),
  )
})

test('each kind of changed bundle is refused with its reason', async () => {
  const foreign = (await bundleOf(TEXT, 7, other)).toString().split('\n')
  const newer = (await bundleOf(TEXT, 8)).toString().split('\n')
  const body = aclStatement.encode({ version: 1, acl_version: 7, acl_sha256: sha256(TEXT) })
  const signedAs = async (domain: string): Promise<string> =>
    `# signature = ${Buffer.from(await operator.sign(domain, body)).toString('base64url')}`
  const base64 = lines[SIGNATURE]!
  for (const [what, bytes, problem] of [
    ['the text', Buffer.from(BUNDLE.toString().replace('"true"', '"false"')), /does not fit/],
    ['a comment in the text', Buffer.concat([BUNDLE, Buffer.from('# more\n')]), /does not fit/],
    ['a version', withLine(VERSION, '# version = 8'), /does not fit/],
    ['the signature of another version', withLine(SIGNATURE, newer[SIGNATURE]!), /does not fit/],
    ['the signature of another agent', withLine(SIGNATURE, foreign[SIGNATURE]!), /does not fit/],
    ['the signer', withLine(SIGNER, foreign[SIGNER]!), /not that of its signer/],
    ['the key', withLine(KEY, foreign[KEY]!), /not that of its signer/],
    ['a signature of this key for a card', withLine(SIGNATURE, await signedAs(CARD_DOMAIN)), /does not fit/],
    ['a signature of this key for the text alone', withLine(SIGNATURE, await signedAs('x0x-acl-v1')), /does not fit/],
    ['line ends', Buffer.from(lines.join('\r\n')), /CR LF/],
    ['a second version', Buffer.from(lines.toSpliced(VERSION, 0, '# version = 7').join('\n')), /damaged/],
    ['a second signer at the end', Buffer.from(lines.toSpliced(SIGNATURE + 1, 0, lines[SIGNER]!).join('\n')), /damaged/],
    ['the order', Buffer.from(lines.toSpliced(SIGNER, 2, lines[KEY]!, lines[SIGNER]!).join('\n')), /damaged/],
    ['a setting in the header', Buffer.from(lines.toSpliced(VERSION, 0, 'x = 1').join('\n')), /damaged/],
    ['a version of 0', withLine(VERSION, '# version = 0'), /damaged/],
    ['a version with a sign', withLine(VERSION, '# version = +7'), /damaged/],
    ['a version with a zero before it', withLine(VERSION, '# version = 07'), /damaged/],
    ['a version that is not exact', withLine(VERSION, '# version = 9007199254740993'), /damaged/],
    [
      'another spelling of the signature',
      withLine(SIGNATURE, `${base64.slice(0, -1)}${base64.endsWith('_') ? '-' : '_'}`),
      /damaged|does not fit/,
    ],
    ['padding', withLine(SIGNATURE, `${base64}=`), /damaged/],
    ['a later format', withLine(0, '# x0x-acl-bundle v2'), /from a later x0x/],
    ['no header but its first line', Buffer.from(`${lines[0]}\n${TEXT}`), /damaged/],
  ] as const)
    assert.match(await problemOf(bytes), problem, what)
  assert.ok(readAclBundle(BUNDLE) !== null)
})

const signing = async (t: TestContext, init: Partial<AclSigningInit> = {}) => {
  const dir = await tempDir(t)
  const [path, file] = [join(dir, 'acl-version.json'), join(dir, 'exec-acl.toml')]
  const all = { signers: [operator.agentId], path, revocations: { of: () => ({ revoked: false, machines: [] }) }, ...init }
  const open = async (more: Partial<AclSigningInit> = {}): Promise<AclSigning> => (await AclSigning.open({ ...all, ...more }))!
  const load = async (bytes: Uint8Array, rules: AclSigning) => {
    await writeFile(file, bytes, { mode: 0o600 })
    return loadAcl({ path: file, explicit: true, signing: rules })
  }
  return { path, file, open, load }
}

const refused = (problem: RegExp) => (error: unknown) => {
  assert.ok(isAppError(error, 'bad_acl'), String(error))
  assert.match(error.message, problem)
  return true
}

test('a host with acl_signers accepts only ACLs that one of them signed', async (t) => {
  const { open, load } = await signing(t)
  const rules = await open()
  assert.deepEqual((await load(BUNDLE, rules)).signature, { version: 7, signer: operator.agentId, sha256: sha256(TEXT).toString('hex') })
  for (const [bytes, problem] of [
    [Buffer.from(TEXT), /exec-acl\.toml: is not signed, and acl_signers requires a signature/],
    [Buffer.from(`\n${BUNDLE.toString()}`), /is not signed/],
    [Buffer.from(`\ufeff${BUNDLE.toString()}`), /is not signed/],
    [await bundleOf(TEXT, 7, other), /which acl_signers does not name/],
    [Buffer.concat([BUNDLE, Buffer.from('\n')]), /does not fit/],
  ] as const)
    await assert.rejects(load(bytes, rules), refused(problem))
  assert.equal(
    await AclSigning.open({ signers: [], path: '/nonexistent/x', revocations: { of: () => ({ revoked: false, machines: [] }) } }),
    null,
  )
})

test('a host without acl_signers refuses a changed bundle and accepts any other file', async (t) => {
  const { file } = await signing(t)
  await writeFile(file, Buffer.concat([BUNDLE, Buffer.from('# more\n')]), { mode: 0o600 })
  assert.match((await inspectAcl(file)).problems.join(), /does not fit/)
  await writeFile(file, BUNDLE, { mode: 0o600 })
  const { problems, signature, acl } = await inspectAcl(file)
  assert.deepEqual([problems, signature?.version, acl?.allow.length], [[], 7, 1])
})

test('the version of the ACL never decreases, even after a restart, and a version has exactly one text', async (t) => {
  const { open, load, path } = await signing(t)
  const rules = await open()
  await rules.remember((await load(BUNDLE, rules)).signature)
  for (const known of [rules, await open()]) {
    await load(BUNDLE, known)
    await load(await bundleOf(TEXT, 8), known)
    await assert.rejects(load(await bundleOf(TEXT, 6), known), refused(/has version 6, and this host has accepted version 7/))
    await assert.rejects(load(await bundleOf(`${TEXT}# more\n`, 7), known), refused(/has version 7, but not the text that was accepted/))
  }
  // An ACL that was read but not used is not remembered.
  assert.deepEqual(JSON.parse(await readFile(path, 'utf8')), { version: 1, acl_version: 7, acl_sha256: sha256(TEXT).toString('hex') })
  await rules.remember((await load(await bundleOf(TEXT, 9), rules)).signature)
  await assert.rejects(load(BUNDLE, await open()), refused(/accepted version 9/))
})

test('a host refuses new ACLs of a signer that was removed or has revoked its key', async (t) => {
  const { open, load } = await signing(t)
  const rules = await open()
  await rules.remember((await load(BUNDLE, rules)).signature)
  const without = await open({ signers: [other.agentId] })
  await assert.rejects(load(BUNDLE, without), refused(/does not name/))
  const revoked = await open({ revocations: { of: () => ({ revoked: true, machines: [] }) } })
  await assert.rejects(load(await bundleOf(TEXT, 8), revoked), refused(/has revoked its key/))
  // A revoked key must not stop hosts that use an earlier ACL of that key.
  assert.equal((await load(BUNDLE, revoked)).signature?.version, 7)
})

test('an unreadable file of accepted versions is an error, not an empty one', async (t) => {
  const { open, path } = await signing(t)
  for (const text of [
    '',
    '{}',
    '{"version":1,"acl_version":0,"acl_sha256":""}',
    `{"version":1,"acl_version":7,"acl_sha256":"${'0'.repeat(63)}"}`,
    '{"version":2}',
  ]) {
    await writeFile(path, text, { mode: 0o600 })
    await assert.rejects(open(), refused(/acl-version\.json/))
  }
  await writeFile(path, `{"version":1,"acl_version":7,"acl_sha256":"${'0'.repeat(64)}"}`)
  await chmod(path, 0o644)
  await assert.rejects(open(), (error) => isAppError(error, 'loose_permissions'))
})

test('a file that exceeds the size limit of an ACL is refused, even with a valid start', async (t) => {
  const { open, load, file } = await signing(t)
  const rules = await open()
  await load(BUNDLE, rules)
  // The file is sparse and uses no blocks on the disk.
  await truncate(file, MAX_STDIN_BYTES)
  await assert.rejects(loadAcl({ path: file, explicit: true, signing: rules }), refused(/has more than \d+ bytes/))
})
