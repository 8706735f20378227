import assert from 'node:assert/strict'
import { chmod, chown, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { test } from 'node:test'

import fc from 'fast-check'

import { systemClock } from '../../src/base/clock.ts'
import { isAppError } from '../../src/base/errors.ts'
import { DeskModes } from '../../src/desk/modes.ts'
import { loadStore, replaceStore } from '../../src/desk/store-format.ts'
import { readStore, storeText } from '../../src/desk/store-format.ts'
import { MAX_OVERRIDES, MAX_QUESTION_TEXT } from '../../src/protocol/limits/approvals.ts'
import { deskPlace, questionWaiting, type DeskPlaceHandle } from '../support/desk-place.ts'
import { questionOf } from '../support/approval-request.ts'

const never = new AbortController().signal
const nothing = (): void => undefined

/** Lets an approver grant a request with allow_always. */
const allowAlways = async (place: DeskPlaceHandle, lasting: { expires_in_ms?: number; uses?: number } = {}): Promise<string> => {
  const human = await place.human('window')
  await human.subscribe(nothing)
  const pending = Promise.withResolvers<{ question_id: string }>()
  const asked = place.engine().ask(questionOf(), never, pending.resolve)
  const { question_id } = await pending.promise
  const { grant_id } = await human.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_always', ...lasting })
  assert.equal((await asked).decision, 'allow')
  human.close()
  return grant_id ?? ''
}

test('the approval store of the specification is read unchanged', () => {
  const seed = {
    version: 1,
    socket: { path: '~/.x0x/exec-approvals.sock', token: Buffer.alloc(32, 1).toString('base64') },
    defaults: { security: 'deny', ask: 'on-miss', askFallback: 'deny' },
    agents: {
      'agent-id-1': {
        security: 'allowlist',
        ask: 'on-miss',
        allowlist: [
          {
            pattern: '~/Projects/**/bin/rg',
            lastUsedAt: 0,
            lastUsedCommand: 'rg -n TODO',
            lastResolvedPath: '/Users/user/Projects/x/bin/rg',
          },
        ],
      },
    },
  }
  const store = readStore(Buffer.from(JSON.stringify(seed)), 'file')
  assert.deepEqual(store.agents, seed.agents)
  assert.deepEqual(store.grants, [])
})

const storeWith = (parts: object): Buffer =>
  Buffer.from(
    JSON.stringify({
      version: 1,
      socket: { path: '/tmp/s', token: Buffer.alloc(32, 1).toString('base64') },
      defaults: { security: 'deny', ask: 'on-miss', askFallback: 'deny' },
      agents: {},
      ...parts,
    }),
  )
const WRONG: readonly (readonly [parts: object, problem: string])[] = [
  [{ agents: { main: { allowlist: [{ pattern: '/a', id: 1 }] } } }, 'agents.main.allowlist[0]: unknown key "id"'],
  [{ agents: { main: { allowlist: [{ pattern: '/a' }, { pattern: 7 }] } } }, 'agents.main.allowlist[1].pattern is not a text'],
  [{ agents: { main: { allowlist: [{ pattern: '/a', lastUsedAt: null }] } } }, 'agents.main.allowlist[0].lastUsedAt is not a whole number'],
  [{ agents: { main: { allowlist: [7] } } }, 'agents.main.allowlist[0] is not a table'],
  [{ agents: { 'a b': { ask: 'never' } } }, 'agents["a b"].ask is not one of'],
  [{ agents: { main: { asks: 'off' } } }, 'agents.main: unknown key "asks"'],
  [{ agents: { main: null } }, 'agents.main is not a table'],
  [{ agents: { '*': { ask: 'always' } } }, 'agents: "*" is not the name of one agent'],
  [{ agents: { '': {} } }, 'agents: "" is not the name of one agent'],
  [{ agents: { [`n${'x'.repeat(MAX_QUESTION_TEXT)}`]: {} } }, 'agents: "nxxx'],
  [{ agents: [] }, 'agents is not a table'],
  [{ modes: { main: { hosts: 'sandbox' } } }, 'modes.main: unknown key "hosts"'],
  [{ modes: { '*': {} } }, 'modes: "*" is not the name of one agent'],
  [{ grants: [{}] }, 'grants[0].'],
  [{ grants: [null] }, 'grants[0] is not a table'],
  [{ defaults: { security: 'deny', ask: 'on-miss', askFallback: 'deny', skills: 1 } }, 'defaults: unknown key "skills"'],
]

for (const [parts, problem] of WRONG)
  test(`an invalid store gives an error that names the position: ${problem}`, () => {
    assert.throws(
      () => readStore(storeWith(parts), 'file'),
      (error) => isAppError(error, 'bad_approvals') && error.message.startsWith(`file: ${problem}`),
    )
  })

test('the name "*" cannot be used for an agent\'s allowlist or modes', async (t) => {
  const place = await deskPlace(t)
  for (const change of ['allowlist_add', 'allowlist_remove'] as const)
    await assert.rejects((await place.human()).allowlist(change, '*', '/usr/bin/rg', true))
  await assert.rejects((await place.human()).saveModes('*', null))
  assert.deepEqual((await place.store())['agents'], {})
})

test('the first start creates a private store with a new token and without permissions', async (t) => {
  const [one, other] = [await deskPlace(t), await deskPlace(t)]
  assert.equal((await stat(one.paths.approvals)).mode & 0o777, 0o600)
  const [a, b] = [await one.store(), await other.store()]
  assert.notEqual(a['socket'].token, b['socket'].token)
  assert.equal(Buffer.from(a['socket'].token, 'base64').length, 32)
  assert.deepEqual([a['agents'], a['grants']], [{}, []])
  assert.equal(a['defaults'].askFallback, 'deny')
})

const BROKEN: Readonly<Record<string, (path: string) => Promise<void>>> = {
  'is not JSON': async (path) => writeFile(path, '{'),
  'is empty, as after a torn write': async (path) => writeFile(path, ''),
  'has an unknown key': async (path) => writeFile(path, (await readFile(path, 'utf8')).replace('"agents"', '"allow_all": true, "agents"')),
  'has an unknown mode': async (path) => writeFile(path, (await readFile(path, 'utf8')).replace('"on-miss"', '"never"')),
  'has another version': async (path) => writeFile(path, (await readFile(path, 'utf8')).replace('"version": 1', '"version": 2')),
  'is readable for other users': async (path) => chmod(path, 0o644),
  'is writable for other users': async (path) => chmod(path, 0o666),
  'is a symbolic link': async (path) => {
    await rename(path, `${path}.real`)
    await symlink(`${path}.real`, path)
  },
  'is missing': async (path) => rm(path),
}

for (const [what, damage] of Object.entries(BROKEN))
  test(`a store that ${what} makes approvals unavailable and is never overwritten`, async (t) => {
    const place = await deskPlace(t)
    await allowAlways(place)
    const human = await place.human()
    await damage(place.paths.approvals)
    const before = await readFile(place.paths.approvals).catch(() => null)
    await assert.rejects(place.link.ask(questionOf(), never, nothing), { code: 'approval_unavailable' })
    await assert.rejects(human.allowlist('allowlist_add', 'reviewer', '/usr/bin/rg'))
    assert.deepEqual(await readFile(place.paths.approvals).catch(() => null), before)
  })

test(
  'the service uses no store that belongs to another user',
  { skip: process.geteuid?.() === 0 ? false : 'needs root, to give a file away' },
  async (t) => {
    const place = await deskPlace(t)
    await allowAlways(place)
    await chown(place.paths.approvals, 65_534, 65_534)
    await assert.rejects(place.link.ask(questionOf(), never, nothing), { code: 'approval_unavailable' })
  },
)

test('a grant allows further runs, even after a restart, until an approver revokes it', async (t) => {
  const place = await deskPlace(t)
  const id = await allowAlways(place)
  const ask = async () => place.link.ask(questionOf(), never, nothing)
  assert.equal((await ask()).by, `grant:${id}`)
  await place.restart()
  assert.equal((await ask()).by, `grant:${id}`)
  const human = await place.human()
  assert.deepEqual(
    (await human.grants()).map((grant) => grant.id),
    [id],
  )
  assert.deepEqual(await human.revoke(id), { revoked: true })
  assert.deepEqual(await human.revoke(id), { revoked: false })
  assert.equal((await ask()).decision, 'no_ui')
  const changes = (await place.journal()).filter(({ event }) => event === 'store_changed').map(({ change }) => change)
  assert.deepEqual(changes, ['created', 'grant', 'grant_use', 'grant_use', 'revoke'])
})

test('a grant of three uses allows three runs, including the first one, even for simultaneous requests', async (t) => {
  const place = await deskPlace(t)
  await allowAlways(place, { uses: 3 })
  const answers = await Promise.all(Array.from({ length: 8 }, async () => place.link.ask(questionOf(), never, nothing)))
  assert.equal(answers.filter(({ decision }) => decision === 'allow').length, 2)
  await place.restart()
  assert.notEqual((await place.link.ask(questionOf(), never, nothing)).decision, 'allow')
})

test('simultaneous requests beyond the remaining uses of a grant go to the approvers', async (t) => {
  const place = await deskPlace(t)
  await allowAlways(place, { uses: 3 })
  const human = await place.human()
  await human.subscribe(nothing)
  const pending: { question_id: string }[] = []
  const five = Promise.withResolvers<void>()
  const asked = Array.from({ length: 7 }, async () =>
    place.link.ask(questionOf(), never, (one) => pending.push(one) === 5 && five.resolve()),
  )
  await Promise.race([five.promise, Promise.all(asked)])
  for (const { question_id } of pending)
    await human.decide({ question_id, permit_sha256: questionOf().permit_sha256, decision: 'allow_once' })
  const by = (await Promise.all(asked)).map((answer) => `${answer.decision} ${answer.by.split(':')[0]}`).sort()
  assert.deepEqual(
    by,
    [2, 5].flatMap((count, at) => Array.from({ length: count }, () => ['allow grant', 'allow human'][at])),
  )
})

test('an expired grant does not allow a run', async (t) => {
  const place = await deskPlace(t)
  await allowAlways(place, { expires_in_ms: 1_000 })
  await place.writeStore((store) => (store['grants'][0].expires_at_ms = Date.now() - 1))
  assert.equal((await place.link.ask(questionOf(), never, nothing)).decision, 'no_ui')
})

test('a command that always asks can only be allowed once, and no grant answers it', async (t) => {
  const place = await deskPlace(t)
  await allowAlways(place)
  const human = await place.human()
  await human.subscribe(nothing)
  const pending = Promise.withResolvers<{ question_id: string }>()
  const question = questionOf({ always_ask: 'it leaves this machine' })
  const asked = place.engine().ask(question, never, pending.resolve)
  const { question_id } = await pending.promise
  const decided = { question_id, permit_sha256: question.permit_sha256 }
  await assert.rejects(human.decide({ ...decided, decision: 'allow_always' }), { code: 'bad_request' })
  await human.decide({ ...decided, decision: 'allow_once' })
  assert.equal((await asked).by, 'human:terminal')
})

test('if a store, a session or a request says ask = always, approvers cannot choose a grant', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.subscribe(nothing)
  const refusedAlways = async (question: ReturnType<typeof questionOf>): Promise<void> => {
    const pending = Promise.withResolvers<{ question_id: string }>()
    const asked = place.engine().ask(question, never, pending.resolve)
    const { question_id } = await pending.promise
    assert.deepEqual((await human.pending()).questions[0]?.decisions, ['allow_once', 'deny'])
    const decided = { question_id, permit_sha256: question.permit_sha256 }
    await assert.rejects(human.decide({ ...decided, decision: 'allow_always' }), { code: 'bad_request', message: /allow it once/ })
    await human.decide({ ...decided, decision: 'allow_once' })
    assert.equal((await asked).decision, 'allow')
  }
  await refusedAlways(questionOf({ ask: 'always' }))
  await human.setModes('s_1', { host: null, security: null, ask: 'always', node: null, elevated: null })
  await refusedAlways(questionOf({ session_id: 's_1' }))
  await place.writeStore((store) => (store['agents'].reviewer = { ask: 'always' }))
  await refusedAlways(questionOf())
  assert.deepEqual(await human.grants(), [])
})

test('the service does not restore an allowlist pattern that the operator removed from the file', async (t) => {
  const place = await deskPlace(t)
  await place.writeStore((store) => {
    store['agents'].reviewer = { security: 'allowlist', allowlist: [{ pattern: '/usr/bin/git' }, { pattern: '/usr/bin/rg' }] }
  })
  assert.equal((await place.link.ask(questionOf(), never, nothing)).by, 'allowlist:/usr/bin/git')
  // The use of the pattern is not written yet.
  await place.writeStore((store) => store['agents'].reviewer.allowlist.shift())
  await place.stop()
  const { agents } = await place.store()
  assert.deepEqual(agents.reviewer.allowlist, [{ pattern: '/usr/bin/rg' }])
})

test('a pattern allows opaque commands only if an approver says so, and a pattern for whole directories is refused', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const opaque = 'git may start other programs'
  const by = async () => (await place.link.ask(questionOf({ opaque }), never, nothing)).by
  // A store of an earlier release, without the key `opaque`.
  await place.writeStore((store) => {
    const allowlist = [{ pattern: '/**' }, { pattern: '/usr/bin/git', lastUsedAt: 0, lastUsedCommand: '', lastResolvedPath: '' }]
    store['agents'].reviewer = { allowlist }
  })
  assert.equal(await by(), 'desk')
  assert.equal((await place.link.ask(questionOf(), never, nothing)).by, 'allowlist:/usr/bin/git')
  await assert.rejects(human.allowlist('allowlist_add', 'reviewer', '/usr/bin/*', true), { code: 'bad_request' })
  assert.deepEqual(await human.allowlist('allowlist_add', 'reviewer', '/usr/bin/git', true), { changed: true })
  assert.deepEqual(await human.allowlist('allowlist_add', 'reviewer', '/usr/bin/git', true), { changed: false })
  assert.equal(await by(), 'allowlist:/usr/bin/git')
})

test('a grant of an opaque command lasts 8 hours by default and at most 24 hours', async (t) => {
  const place = await deskPlace(t)
  const [opaque, hour] = ['git may start other programs', 3_600_000]
  const grant = async (changed: Parameters<typeof questionOf>[0], lasts: object) => {
    const { human, asked, question_id } = await questionWaiting(place, questionOf({ opaque, ...changed }))
    const { permit_sha256 } = questionOf()
    const decided = human.decide({ question_id, permit_sha256, decision: 'allow_always', ...lasts })
    const code = await decided.then(
      () => null,
      (error: { code: string }) => error.code,
    )
    if (code !== null) await human.decide({ question_id, permit_sha256, decision: 'deny' })
    await asked
    const [last] = (await human.grants()).slice(-1)
    if (code === null && last !== undefined) await human.revoke(last.id)
    return code ?? (last === undefined ? null : (last.expires_at_ms - last.created_at_ms) / hour)
  }
  assert.equal(await grant({}, {}), 8)
  assert.equal(await grant({}, { expires_in_ms: 24 * hour }), 24)
  assert.equal(await grant({}, { expires_in_ms: 24 * hour + 1 }), 'bad_request')
  assert.equal(await grant({ always_ask: 'it may be what the list has' }, {}), 8)
  assert.equal(await grant({ opaque: null }, {}), 30 * 24)
})

test('a pattern records the time, command and file of its last use', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  assert.deepEqual(await human.allowlist('allowlist_add', 'reviewer', '/usr/bin/git'), { changed: true })
  await assert.rejects(human.allowlist('allowlist_add', 'reviewer', 'git'), { code: 'bad_request' })
  const before = Date.now()
  await place.link.ask(questionOf(), never, nothing)
  await place.stop()
  const [entry] = (await place.store())['agents'].reviewer.allowlist
  assert.equal(entry.lastUsedCommand, 'git push origin')
  assert.equal(entry.lastResolvedPath, '/usr/bin/git')
  assert.ok(entry.lastUsedAt >= before)
})

test('a write is refused if another program changed the store meanwhile', async (t) => {
  const place = await deskPlace(t)
  const { approvals } = place.paths
  const before = await loadStore(approvals)
  await place.writeStore((store) => (store['defaults'].security = 'deny'))
  const next = { ...before.store, agents: { reviewer: { security: 'full' as const } } }
  await assert.rejects(replaceStore(approvals, before, next), { code: 'conflict' })
  assert.deepEqual((await place.store())['agents'], {})
})

test('modes of a session last until they are removed or the service ends, and saved modes also last over a restart', async (t) => {
  const place = await deskPlace(t, { security: 'deny' })
  const human = await place.human()
  const ask = async () => (await place.link.ask(questionOf({ session_id: 's_1', security: 'full' }), never, nothing)).by
  assert.equal(await ask(), 'desk')
  const elevated = { host: null, security: null, ask: null, node: null, elevated: 'full' as const }
  const onHost = { host: 'gateway', security: 'full', ask: 'off', node: null, elevated: null }
  await human.setModes('s_1', elevated)
  assert.equal(await ask(), 'mode:full')
  assert.deepEqual(await place.engine().override('s_1', null), onHost)
  await human.setModes('s_1', null)
  assert.equal(await ask(), 'desk')
  await human.setModes('s_1', elevated)
  await place.restart()
  assert.equal(await ask(), 'desk')
  const again = await place.human()
  await again.saveModes('reviewer', { security: 'full', ask: 'off' })
  await place.restart()
  assert.equal(await ask(), 'mode:full')
  assert.deepEqual((await place.store())['agents'], { reviewer: { security: 'full', ask: 'off' } })
  // The saved row narrows the engine's configuration and sets no session override.
  assert.equal(await place.link.override('another', 'reviewer'), null)
})

test("each mode comes from the session, its agent's sessions or the saved row, in this order", async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  const nothing = { host: null, security: null, ask: null, node: null, elevated: null }
  const ask = async () => (await place.link.ask(questionOf({ session_id: 's_1', security: 'full' }), never, () => undefined)).decision
  await human.saveModes('reviewer', { security: 'deny', ask: null })
  await human.setModes('reviewer', { ...nothing, node: 'bob' })
  await human.setModes('s_1', { ...nothing, ask: 'off' })
  for (const link of [place.link, place.engine()])
    assert.deepEqual(await link.override('s_1', 'reviewer'), { ...nothing, ask: 'off', node: 'bob' })
  assert.equal(await ask(), 'deny')
  await human.setModes('s_1', { ...nothing, security: 'full' })
  assert.equal(await ask(), 'allow')
  await human.setModes('s_1', null)
  assert.equal(await ask(), 'deny')
  // Saving modes keeps the other fields of the row, and removing them keeps its allowlist.
  await human.allowlist('allowlist_add', 'reviewer', '/usr/bin/df')
  await human.saveModes('reviewer', { security: null, ask: 'always' })
  const allowlist = [{ pattern: '/usr/bin/df' }]
  assert.deepEqual((await place.store())['agents'], { reviewer: { security: 'deny', ask: 'always', allowlist } })
  await human.saveModes('reviewer', null)
  assert.deepEqual((await place.store())['agents'], { reviewer: { allowlist } })
})

test('session modes are listed with their author, and a mode over the limit is refused instead of replacing one', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human('terminal')
  const deny = { host: null, security: 'deny', ask: null, node: null, elevated: null } as const
  await human.saveModes('reviewer', { security: 'deny', ask: null })
  for (const name of ['s_1', 's_2', 's_1']) await human.setModes(name, deny)
  const { sessions, saved, left_out } = await human.allModes()
  assert.deepEqual([left_out, saved], [0, [{ agent: 'reviewer', security: 'deny', ask: null }]])
  assert.deepEqual(
    sessions.map(({ set_at_ms, ...one }) => ({ ...one, isNow: Math.abs(Date.now() - set_at_ms) < 60_000 })),
    ['s_2', 's_1'].map((session) => ({ session, override: deny, by: 'human:terminal', isNow: true })),
  )
  const store = { read: async () => readStore(await readFile(place.paths.approvals), ''), change: async () => false }
  const modes = new DeskModes({ clock: systemClock, store, journal: { changed: async () => undefined } })
  for (let n = 0; n < MAX_OVERRIDES; n++) await modes.set(`s_${n}`, deny, 'human:x')
  await assert.rejects(modes.set('one more', deny, 'human:x'), { code: 'resource_limit' })
  await modes.set('s_1', null, 'human:x')
  await modes.set('one more', deny, 'human:x')
  assert.equal((await modes.of('s_0', null))?.security, 'deny')
})

test('modes never widen the configuration of the engine', async (t) => {
  const place = await deskPlace(t)
  const human = await place.human()
  await human.setModes('s_1', { host: null, security: null, ask: null, node: null, elevated: 'full' })
  const answer = await place.link.ask(questionOf({ session_id: 's_1', security: 'deny' }), never, nothing)
  assert.equal(answer.decision, 'deny')
  const always = await place.link.ask(questionOf({ session_id: 's_1', security: 'full', always_ask: 'why' }), never, nothing)
  assert.equal(always.decision, 'no_ui')
})

const text = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 12 }).filter((one) => one !== '__proto__')
/** Modes are for one agent, and `*` would mean all. */
const agentName = text.filter((one) => one !== '*')
const anyStore = fc.record({
  version: fc.constant(1),
  socket: fc.record({ path: text, token: fc.constant(Buffer.alloc(32, 1).toString('base64')) }),
  defaults: fc.record({
    security: fc.constantFrom('deny', 'allowlist', 'full'),
    ask: fc.constantFrom('off', 'on-miss', 'always'),
    askFallback: fc.constantFrom('deny', 'allowlist', 'full'),
  }),
  agents: fc.dictionary(
    text.filter((name) => name !== '*'),
    fc.record(
      {
        security: fc.constantFrom('deny', 'full'),
        allowlist: fc.array(fc.record({ pattern: text, lastUsedAt: fc.nat() }, { requiredKeys: ['pattern'] }), { maxLength: 3 }),
      },
      { requiredKeys: [] },
    ),
    { maxKeys: 3 },
  ),
  grants: fc.constant([]),
  modes: fc.dictionary(agentName, fc.constant({ host: null, security: 'deny', ask: null, node: null, elevated: null }), { maxKeys: 2 }),
})

/** Reads a store, or returns null if it is invalid. Throws any other error. */
const read = (bytes: Uint8Array): object | null => {
  try {
    return readStore(bytes, 'file')
  } catch (error) {
    if (isAppError(error, 'bad_approvals')) return null
    throw error
  }
}

test('property: a written store reads back unchanged, and other bytes give only the error bad_approvals', () => {
  fc.assert(
    fc.property(anyStore, (store) => {
      const known = readStore(Buffer.from(JSON.stringify(store)), 'file')
      assert.deepEqual(readStore(Buffer.from(storeText(known)), 'file'), known)
    }),
  )
  fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), (any) => assert.equal(read(any), null)))
})

test('property: a store with one changed character is refused or equals its JSON', () => {
  fc.assert(
    fc.property(anyStore, fc.nat(), fc.constantFrom(...'az09AZ{}[]":,_ \\\0'), (store, at, character) => {
      const whole = JSON.stringify(store)
      const changed = whole.slice(0, at % whole.length) + character + whole.slice((at % whole.length) + 1)
      const known = read(Buffer.from(changed))
      if (known !== null) assert.deepEqual(known, JSON.parse(Buffer.from(changed).toString('utf8')))
      // A truncated store is invalid.
      assert.equal(read(Buffer.from(whole.slice(0, at % whole.length))), null)
    }),
    { numRuns: 500 },
  )
})
