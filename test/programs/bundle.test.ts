import assert from 'node:assert/strict'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { Redactor } from '../../src/programs/bundle/redactor.ts'
import { linesOfFile } from '../../src/programs/bundle/collect.ts'
import { tempDir } from '../support/temp-dir.ts'

const redactor = (): Redactor => new Redactor({ names: ['bob', 'lab'], words: ['/srv/hidden', 'secretword'] })

test('the redactor keeps the words of a sentence and hashes names, ids, addresses, paths and quoted text', () => {
  const id = 'ab12'.repeat(16)
  for (const [text, shape] of [
    [`agent ${id} and ${id.slice(0, 8)}`, /^agent #\w{10} and #\w{10}$/],
    ['trusted from any machine: bob, lab', /^trusted from any machine: #\w{10}, #\w{10}$/],
    [
      '/ip4/192.0.2.7/tcp/5483/p2p/12D3KooWBCpcEXZJabcdefghijkmnopq is not reached',
      /^\/ip4\/#\w{10}\/tcp\/5483\/p2p\/#\w{10} is not reached$/,
    ],
    ['chmod 700 /home/carol/.x0x', /^chmod 700 #\w{10}$/],
    ['the token "hunter2" and \'other\'', /^the token #\w{10} and #\w{10}$/],
    ['run 01890a5d-ac96-774b-bcce-b302099a8057 of secretword in /srv/hidden', /^run #\w{10} of #\w{10} in #\w{10}$/],
    ['sudo -u carol@host and 10.0.0.1', /^sudo -u #\w{10} and #\w{10}$/],
    ['getaddrinfo ENOTFOUND relay-7.carol.example (docs/connections.md)', /^getaddrinfo ENOTFOUND #\w{10} \(docs\/connections\.md\)$/],
    // Unusual positions: next to a number, cut off, in other letter case, in base64, or in a relative path.
    ['in /home/bob/case-4711 of it', /^in …#\w{10}… of it$/],
    [`the word "${'x'.repeat(2_000)}"`, /^the word #\w{10}$/],
    ["bob's daemon refuses 'it's hunter2' there", /^#\w{10}'s daemon refuses #\w{10} there$/],
    ['of `hunter2`, BOB and “hunter2”', /^of #\w{10}, #\w{10} and #\w{10}$/],
    [`given ${Buffer.from('rm hunter2 soon').toString('base64')}`, /^given #\w{10}$/],
    ['not at 2001:db8::7a or fe80::1', /^not at #\w{10} or #\w{10}$/],
    ['no such file: hidden/hunter2.toml', /^no such file: #\w{10}$/],
    ['GET https://carol:hunter2@carol.example/list?x=4711 failed', /^GET #\w{10} failed$/],
    ['a bobsled is no bob', /^a bobsled is no #\w{10}$/],
    ['Node 24.21.0, 3 connected', /^Node 24.21.0, 3 connected$/],
  ] as const)
    assert.match(redactor().sentence(text), shape, text)
})

test('the redactor keeps only numbers, times, known words and known field names of a JSON value', () => {
  const told = redactor().value({
    event: 'denial',
    reason: 'argv_not_allowed',
    ts: '2026-05-21T09:42:18.011Z',
    argv: ['rm', '-rf'],
    cwd: '/srv/hidden',
    agent_id: 'ab12'.repeat(16),
    bob: 1,
    'A key': 2,
    address: '/ip4/192.0.2.7/tcp/5483',
    nested: { free: 'text of somebody', code: 3, none: null },
  }) as Record<string, unknown>
  const { event, reason, ts, argv, cwd, nested } = told
  assert.deepEqual([event, reason, ts, argv, cwd], ['denial', 'argv_not_allowed', '2026-05-21T09:42:18.011Z', '… of 2', '…'])
  assert.match(JSON.stringify(nested), /^\{"free":"#\w{10}","code":3,"none":null\}$/)
  assert.match(String(told['agent_id']), /^#\w{10}$/)
  assert.match(String(told['address']), /^\/ip4\/#\w{10}\/tcp\/5483$/)
  assert.ok(!('bob' in told) && !('A key' in told))
})

test('equal words have equal hashes within a bundle and different hashes in the next one', () => {
  const one = redactor()
  assert.equal(one.hash('x'), one.hash('x'))
  assert.notEqual(one.hash('x'), redactor().hash('x'))
})

test('the redactor cuts long lists, long sentences and deep nesting', () => {
  let deep: unknown = 1
  for (let at = 0; at < 20; at++) deep = [deep]
  assert.ok(JSON.stringify(redactor().value(deep)).length < 100)
  assert.equal((redactor().value(Array.from({ length: 1_000 }, () => 0)) as unknown[]).length, 257)
  assert.ok(redactor().sentence('word '.repeat(10_000)).length <= 1_000)
})

test('linesOfFile reads the end of a log and of its rotated predecessor, and gives null for a missing log', async (t) => {
  const path = join(await tempDir(t), 'exec.log')
  assert.equal(await linesOfFile(path), null)
  await writeFile(`${path}.1`, '{"n":0,"event":"started"}\n{"n":1}\n')
  await writeFile(path, '<6>{"n":2}\nno line of ours\n')
  assert.deepEqual(await linesOfFile(path), [{ n: 0, event: 'started' }, { n: 1 }, { n: 2 }, null])
})
