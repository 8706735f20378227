import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'

import { isAppError } from '../../src/base/errors.ts'
import { MAX_FANOUT_HOSTS } from '../../src/protocol/limits/fleet.ts'
import { MAX_HOST_WORDS } from '../../src/protocol/limits/fleet.ts'
import { parseHostExpression, type HostPart } from '../../src/protocol/hosts/select-hosts.ts'
import { expandNodeSet } from '../../src/protocol/hosts/node-set.ts'

const shown = (part: HostPart): string => {
  switch (part.kind) {
    case 'one':
      return part.text
    case 'set':
      return `<${expandNodeSet(part.set).join(' ')}>`
    case 'group':
      return `@${part.name}`
    case 'label':
      return `${part.key}=${part.value}`
  }
}

const read = (...words: string[]): string => {
  const { include, leaveOut } = parseHostExpression(words)
  return [...include.map(shown), ...leaveOut.map((part) => `!${shown(part)}`)].join(' ')
}

test('words are names, IDs, node sets, groups and labels, with or without commas between them', () => {
  assert.equal(read('alice', 'a'.repeat(64)), `alice ${'a'.repeat(64)}`)
  assert.equal(read('web[1-2,9],db'), '<web1 web2 web9> db')
  assert.equal(read('@prod,role=db', 'site=eu/ber'), '@prod role=db site=eu/ber')
  assert.equal(read('image=debian:12+deb', 'owner=ops@example'), 'image=debian:12+deb owner=ops@example')
})

test('an exclusion works at any position', () => {
  assert.equal(read('web[1-3]', '!web2'), '<web1 web2 web3> !web2')
  assert.equal(read('!web2', 'web[1-3]'), '<web1 web2 web3> !web2')
  assert.equal(read('web[1-3],!web2,db'), '<web1 web2 web3> db !web2')
  assert.equal(read('@prod', '!@drained,!role=db,!web[1-2]'), '@prod !@drained !role=db !<web1 web2>')
})

const WRONG: readonly [readonly string[], RegExp][] = [
  [[], /no host given/],
  [['!web1'], /no hosts are included/],
  [[''], /a host is missing/],
  [['a', ''], /a host is missing/],
  [['a,'], /a host is missing/],
  [['!'], /a host is missing/],
  [['a', '!!b'], /a name cannot contain "!"/],
  [['!a,b'], /excludes only its first part/],
  [['!@a,role=b'], /excludes only its first part/],
  [['@'], /not a group name/],
  [['@a b'], /not a group name/],
  [['@web[1-3]'], /not a group name/],
  [['@-x'], /not a group name/],
  [[`@${'a'.repeat(65)}`], /not a group name/],
  [['=b'], /not a label key/],
  [['a='], /not a label value/],
  [['a=b=c'], /not a label value/],
  [['a=b c'], /not a label value/],
  [['a=ü'], /not a label value/],
  [['__proto__=a'], /not a label key/],
  [[`a=${'b'.repeat(65)}`], /not a label value/],
  [[`${'a'.repeat(65)}=b`], /not a label key/],
  [['a=[1-3]'], /not a label value/],
  [['web[1-3'], /missing "\]"/],
  [['web1-3]'], /"\]" without "\["/],
  [['a;b'], /a name cannot contain ";"/],
  [['../a'], /a name cannot contain "\/"/],
  [['web[1-6000]', 'db[1-6000]'], /select 12000 hosts/],
  [['a', '!web[1-6000]', '!db[1-6000]'], /select 12000 hosts/],
  [['web[1-999999999]'], /selects 999999999 hosts/],
  [[','.repeat(1_000_000)], /a host is missing/],
  [['a,'.repeat(20_000) + 'a'], /select 20001 hosts/],
  [['a'.repeat(MAX_HOST_WORDS), 'b'], /more than 1048576 characters/],
]

test('an invalid expression, or one with too many hosts, is refused with the reason', () => {
  for (const [words, why] of WRONG)
    assert.throws(
      () => parseHostExpression(words),
      (error) => isAppError(error, 'bad_request') && why.test(error.message) && error.message.length < 300,
      words.join(' ').slice(0, 60),
    )
  assert.equal(parseHostExpression([`a[1-${MAX_FANOUT_HOSTS}]`, `!b[1-${MAX_FANOUT_HOSTS}]`]).leaveOut.length, 1)
})

test('any words are parsed or refused with bad_request', () => {
  const piece = fc.constantFrom('a', 'web', '[', ']', ',', '!', '@', '=', '1-3', '[1-3]', 'role=db', ' ', 'é', '\0')
  fc.assert(
    fc.property(fc.array(fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(''))), (words) => {
      try {
        assert.ok(parseHostExpression(words).include.length > 0)
      } catch (error) {
        assert.ok(isAppError(error, 'bad_request'), String(error))
      }
    }),
    { seed: 20_261_126, numRuns: 3000 },
  )
})
