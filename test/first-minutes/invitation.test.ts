import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { sha256 } from '../../src/identity/hash.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { INVITATION_MS } from '../../src/protocol/wire/invitation.ts'
import { makeInvitation, makeReply, readInvitation, readReply, SpokenCodes, type InvitedParty } from '../../src/trust/invitation.ts'

const NOW = 1_700_000_000_000
const party = (name: string, digit: string): InvitedParty => {
  const machine_id = digit.repeat(64)
  return { agent_id: digit.repeat(64), machine_id, name, addresses: [`/ip4/192.0.2.7/tcp/5483/p2p/${peerIdOf(machine_id)}`] }
}
const wrapped = (line: string): string[] => line.match(/.{1,75}/g) ?? []
const [bob, alice, mallory] = [party('bob', 'b'), party('alice', 'a'), party('mallory', 'e')]

test("after an invitation, a reply, a code and its answer, each agent has the other's data", () => {
  const invited = makeInvitation(bob, NOW)
  const seen = readInvitation(`  ${invited.line}\n`, NOW)
  assert.deepEqual(seen.party, bob)
  const replied = makeReply(alice, seen.encoded)
  assert.deepEqual(readReply(replied.line, invited.encoded, NOW).party, alice)
  for (const { line } of [invited, replied]) assert.ok(line.length < 1_000, 'a terminal of macOS takes 1,024 characters')
  const codes = new SpokenCodes({ invited: invited.encoded, replied: replied.encoded })
  const code = codes.code()
  assert.match(code, /^([0-9a-hjkmnp-tv-z]{4}-){2}[0-9a-hjkmnp-tv-z]{4}$/)
  const answer = codes.answerTo(code.toUpperCase().replaceAll('-', ' ').replaceAll('0', 'O').replaceAll('1', 'l'))
  assert.ok(answer !== null && /^[0-9a-z]{4}$/.test(answer))
  assert.ok(codes.isAnswer(answer, code))
  assert.ok(!codes.isAnswer(answer, codes.code()), 'an answer is to one code')
  assert.ok(!codes.isAnswer('', code) && !codes.isAnswer('no', code))
})

test('a line that is damaged, expired or of another invitation is refused with the reason', () => {
  const invited = makeInvitation(bob, NOW)
  const replied = makeReply(alice, invited.encoded)
  const middle = invited.line.length / 2
  const other = invited.line[middle] === 'A' ? 'B' : 'A'
  for (const line of [
    invited.line.slice(0, -1),
    invited.line.slice(0, middle) + other + invited.line.slice(middle + 1),
    `${invited.line}A`,
    `${invited.line}!`,
  ])
    assert.throws(() => readInvitation(line, NOW), /the line is damaged or incomplete: copy the whole line/, line)
  const [firstPart = ''] = wrapped(invited.line)
  assert.throws(
    () => readInvitation(firstPart, NOW),
    (error) => isAppError(error) && String(error.data['next']).startsWith("Try: x0x join 'LINE' "),
  )
  assert.throws(() => readInvitation(replied.line, NOW), /is not an invitation/)
  assert.throws(() => readReply(invited.line, invited.encoded, NOW), /is not the reply/)
  assert.throws(() => readInvitation(invited.line, NOW + INVITATION_MS), /the invitation expired at .*: run x0x invite again/)
  assert.throws(() => readReply(replied.line, invited.encoded, NOW + INVITATION_MS), /the invitation expired/)
  const later = makeInvitation(bob, NOW)
  assert.throws(() => readReply(replied.line, later.encoded, NOW), /answers another invitation/)
})

test('a line that a mail program wrapped, quoted or encoded as quoted-printable is read correctly', () => {
  const { line } = makeInvitation(bob, NOW)
  for (const [end, begin] of [
    ['\n', ''],
    ['\r\n', '> '],
    ['=\r\n', ''],
    ['\u00ad\n', '> > '],
  ] as const)
    assert.deepEqual(
      readInvitation(
        wrapped(line)
          .map((part) => begin + part)
          .join(end),
        NOW,
      ).party,
      bob,
    )
})

test('an invitation or reply drops undialable addresses, and is refused if it has only such addresses', () => {
  const at = (host: string): string => `${host}/tcp/5483/p2p/${peerIdOf(bob.machine_id)}`
  const [linkLocal, good] = [at('/ip6/fe80::1'), at('/ip4/192.0.2.7')]
  const invited = makeInvitation({ ...bob, addresses: [linkLocal, good] }, NOW)
  assert.deepEqual(readInvitation(invited.line, NOW).party.addresses, [good])
  const says = /the address "\/ip6\/fe80::1.*" is a link-local address without a zone/
  assert.throws(() => readInvitation(makeInvitation({ ...bob, addresses: [linkLocal] }, NOW).line, NOW), says)
  const asked = makeInvitation(alice, NOW)
  assert.throws(() => readReply(makeReply({ ...bob, addresses: [linkLocal] }, asked.encoded).line, asked.encoded, NOW), says)
  // A machine that only sends requests has no addresses.
  assert.deepEqual(readInvitation(makeInvitation({ ...bob, addresses: [] }, NOW).line, NOW).party.addresses, [])
})

test('the code does not match if an attacker replaced the lines or invented the code', () => {
  const invited = makeInvitation(bob, NOW)
  const forged = makeInvitation(mallory, NOW)
  const atAlice = makeReply(alice, forged.encoded)
  const atBob = makeReply(mallory, invited.encoded)
  readInvitation(forged.line, NOW)
  readReply(atBob.line, invited.encoded, NOW)
  const bobs = new SpokenCodes({ invited: invited.encoded, replied: atBob.encoded })
  const alices = new SpokenCodes({ invited: forged.encoded, replied: atAlice.encoded })
  assert.equal(alices.answerTo(bobs.code()), null)
  const reply = makeReply(alice, invited.encoded)
  const half = new SpokenCodes({ invited: invited.encoded, replied: reply.encoded })
  assert.equal(half.answerTo(bobs.code()), null, 'only the reply was replaced')
  assert.equal(half.answerTo('0000-0000-0000'), null)
})

test('in 20,000 tries, the code of other lines fits at most twice', () => {
  const invited = makeInvitation(bob, NOW).encoded
  const one = new SpokenCodes({ invited, replied: makeReply(mallory, invited).encoded })
  const other = new SpokenCodes({ invited, replied: makeReply(alice, invited).encoded })
  let full = 0
  for (let n = 0; n < 20_000; n++) if (other.answerTo(one.code()) !== null) full += 1
  assert.ok(full <= 2, `${full} of 20,000; 0.02 are to be expected`)
})

const isRefusal = (error: unknown): boolean => isAppError(error, 'bad_request')

test('any text, any bytes with a valid checksum and any altered line are refused or read', () => {
  const invited = makeInvitation(bob, NOW)
  const withSum = (prefix: string, bytes: Uint8Array): string =>
    prefix + Buffer.concat([bytes, sha256(bytes).subarray(0, 4)]).toString('base64url')
  const read = (line: string): void => {
    for (const one of [() => readInvitation(line, NOW), () => readReply(line, invited.encoded, NOW)])
      try {
        one()
      } catch (error) {
        assert.ok(isRefusal(error), String(error))
      }
  }
  const prefix = fc.constantFrom('x0x://invite/', 'x0x://reply/', '')
  fc.assert(fc.property(prefix, fc.string({ maxLength: 300 }), (before, text) => read(before + text)))
  fc.assert(fc.property(prefix, fc.uint8Array({ maxLength: 300 }), (before, bytes) => read(withSum(before, bytes))))
  for (const { line, encoded } of [invited, makeReply(alice, invited.encoded)]) {
    const before = line.slice(0, line.lastIndexOf('/') + 1)
    for (let bit = 0; bit < encoded.length * 8; bit++) {
      const changed = Uint8Array.from(encoded)
      changed[bit >> 3]! ^= 1 << (bit & 7)
      read(withSum(before, changed))
      const plain = before + Buffer.concat([changed, sha256(encoded).subarray(0, 4)]).toString('base64url')
      assert.throws(() => (before.includes('invite') ? readInvitation(plain, NOW) : readReply(plain, invited.encoded, NOW)), isRefusal)
    }
  }
  assert.throws(() => readInvitation(`x0x://invite/${'A'.repeat(5_000)}`, NOW), /copy the whole line/)
})

test('each changed bit of either line gives other codes, even with a corrected checksum', () => {
  const invited = makeInvitation(bob, NOW).encoded
  const replied = makeReply(alice, invited).encoded
  const codes = new SpokenCodes({ invited, replied })
  const code = codes.code()
  let fitting = 0
  for (const line of [invited, replied])
    for (let bit = 0; bit < line.length * 8; bit++) {
      const changed = Uint8Array.from(line)
      changed[bit >> 3]! ^= 1 << (bit & 7)
      const other = new SpokenCodes(line === invited ? { invited: changed, replied } : { invited, replied: changed })
      if (other.answerTo(code) !== null) fitting += 1
    }
  assert.ok(fitting <= 1, `${fitting}`)
  assert.notEqual(codes.answerTo(code), null)
})
