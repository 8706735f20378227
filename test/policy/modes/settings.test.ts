import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import {
  narrowedBy,
  NO_SETTINGS,
  resolveExec,
  type ExecSettings,
  type ResolvedExec,
  type SettingSources,
} from '../../../src/policy/modes.ts'
import { isGivenLabel, placesOf, settingsOf, together, type ToolsSettings } from '../../../src/policy/modes.ts'
import type { ModeOverride } from '../../../src/protocol/desk/messages.ts'
import { overrideText } from '../../../src/protocol/desk/mode-command.ts'
import { ASK_FALLBACKS, ASKS, HOSTS, SECURITIES } from '../../../src/protocol/desk/approval-request.ts'

const set = (fields: Partial<ExecSettings> = {}): ExecSettings => ({ ...NO_SETTINGS, ...fields })
const places = (fields: Partial<SettingSources> = {}): SettingSources => ({
  parameter: NO_SETTINGS,
  session: NO_SETTINGS,
  agent: NO_SETTINGS,
  global: NO_SETTINGS,
  allowed_hosts: null,
  ...fields,
})
const resolved = (fields: Partial<SettingSources> = {}): ResolvedExec => {
  const result = resolveExec(places(fields))
  assert.ok(result.kind === 'resolved', result.kind)
  return result
}

test('O1 O5: the default is the sandbox, and on this host or a node the default denies everything', () => {
  const { host, security, ask, ask_fallback, node } = resolved()
  assert.deepEqual(
    { host, security, ask, ask_fallback, node },
    { host: 'sandbox', security: 'full', ask: 'on-miss', ask_fallback: 'deny', node: null },
  )
  for (const other of ['gateway', 'node'] as const) assert.equal(resolved({ global: set({ host: other }) }).security, 'deny')
})

test('O4 O6: host, security, ask and node each come from the first place that sets them', () => {
  const all = resolved({
    session: set({ ask: 'off' }),
    agent: set({ ask: 'always', security: 'full' }),
    global: set({ host: 'node', security: 'deny', ask: 'always', node: 'bob' }),
  })
  assert.deepEqual(
    [all.host, all.security, all.ask, all.node, all.from],
    ['node', 'full', 'off', 'bob', { host: 'global', security: 'agent', ask: 'session', ask_fallback: 'default', node: 'global' }],
  )
  const wished = resolved({
    parameter: set({ host: 'sandbox', security: 'allowlist' }),
    global: set({ host: 'gateway', security: 'full' }),
  })
  assert.deepEqual(
    [wished.host, wished.security, wished.from.host, wished.from.security],
    ['sandbox', 'allowlist', 'parameter', 'parameter'],
  )
})

test('B23: a call can only narrow settings, and the result lists each wider preference that was cut', () => {
  const configured = set({ host: 'gateway', security: 'allowlist', ask: 'on-miss', ask_fallback: 'allowlist' })
  const wide = resolved({ parameter: set({ security: 'full', ask: 'off', ask_fallback: 'full' }), global: configured })
  assert.deepEqual([wide.security, wide.ask, wide.ask_fallback], ['allowlist', 'on-miss', 'allowlist'])
  assert.deepEqual(wide.cuts, [
    { key: 'security', asked: 'full', got: 'allowlist' },
    { key: 'ask', asked: 'off', got: 'on-miss' },
  ])
  const narrow = resolved({ parameter: set({ security: 'deny', ask: 'always', ask_fallback: 'deny' }), global: configured })
  assert.deepEqual([narrow.security, narrow.ask, narrow.ask_fallback, narrow.cuts], ['deny', 'always', 'deny', []])
})

test('a call can choose the configured host, the sandbox, or a host that the configuration allows', () => {
  const choose = (host: ExecSettings['host'], fields: Partial<SettingSources> = {}): string => {
    const result = resolveExec(places({ parameter: set({ host }), ...fields }))
    return result.kind === 'resolved' ? result.host : `refused ${result.allowed.join(' ')}`
  }
  assert.deepEqual(
    HOSTS.map((host) => choose(host)),
    ['sandbox', 'refused sandbox', 'refused sandbox'],
  )
  const gateway = { global: set({ host: 'gateway' }) }
  assert.deepEqual(
    HOSTS.map((host) => choose(host, gateway)),
    ['sandbox', 'gateway', 'refused gateway sandbox'],
  )
  assert.deepEqual(
    HOSTS.map((host) => choose(host, { ...gateway, allowed_hosts: ['node'] })),
    ['refused gateway node', 'gateway', 'node'],
  )
})

test('a call cannot change a configured node, and may name one if none is configured', () => {
  const to = (node: string, global: ExecSettings): string => {
    const result = resolveExec(places({ parameter: set({ node }), global }))
    return result.kind === 'resolved' ? String(result.node) : result.kind
  }
  assert.equal(to('carol', set({ host: 'node', node: 'bob' })), 'refused')
  assert.equal(to('bob', set({ host: 'node', node: 'bob' })), 'bob')
  assert.equal(to('carol', set({ host: 'node' })), 'carol')
})

test('B27: the row of an agent widens nothing for a client that chose its own label', () => {
  const sandbox = {} as ToolsSettings['sandbox']
  const row = (fields: Partial<ExecSettings>): ToolsSettings['defaults'] => ({ ...set(fields), allowed_hosts: ['node'] })
  const tools = (own: Partial<ExecSettings>, all: Partial<ExecSettings>): ToolsSettings => ({
    defaults: { ...set(all), allowed_hosts: null },
    agents: { bot: row(own) },
    sandbox,
    always_ask: [],
  })
  const got = (settings: ToolsSettings, isGiven: boolean): string[] => {
    const { host, security, ask, ask_fallback } = resolved(placesOf(settings, 'bot', null, isGiven))
    return [host, security, ask, ask_fallback]
  }
  const wide = tools({ host: 'gateway', security: 'full', ask: 'off', ask_fallback: 'full' }, { host: 'gateway' })
  assert.deepEqual(got(wide, true), ['gateway', 'full', 'off', 'full'])
  assert.deepEqual(got(wide, false), ['gateway', 'deny', 'on-miss', 'deny'])
  const strict = tools({ security: 'deny', ask: 'always' }, { host: 'gateway', security: 'full', ask: 'off' })
  assert.deepEqual(got(strict, false), ['gateway', 'deny', 'always', 'deny'])
  assert.equal(placesOf(wide, 'bot', null, false).allowed_hosts, null)
  assert.ok(isGivenLabel('mcp') && !isGivenLabel('console') && !isGivenLabel('stdio'))
})

const anyOf = <T>(values: readonly T[]): fc.Arbitrary<T | null> => fc.constantFrom(...values, null)
const anySettings: fc.Arbitrary<ExecSettings> = fc.record({
  host: anyOf(HOSTS),
  security: anyOf(SECURITIES),
  ask: anyOf(ASKS),
  ask_fallback: anyOf(ASK_FALLBACKS),
  node: anyOf(['bob', 'carol']),
})
const anyTable = fc.record({ settings: anySettings, allowed_hosts: anyOf([['node'], ['gateway'], []] as const) })
const anyOverride = fc.record({
  host: anyOf(HOSTS),
  security: anyOf(SECURITIES),
  ask: anyOf(ASKS),
  node: anyOf(['bob', 'carol']),
  elevated: anyOf(['on', 'ask', 'full'] as const),
})

const SETTINGS = ['host', 'security', 'ask', 'ask_fallback', 'node'] as const
/** The settings that a key of an override or a table may change. */
const TOUCHES: Readonly<Record<string, readonly string[]>> = { elevated: ['host', 'security', 'ask'] }

test('O4 O7: property: a change of one setting never changes another one', () => {
  const layers = fc.record({
    byId: fc.option(anyOverride),
    byName: fc.option(anyOverride),
    claimed: fc.option(anyOverride),
    all: anySettings,
    bot: anySettings,
  })
  const where = fc.constantFrom('byId', 'byName', 'all', 'bot')
  fc.assert(
    fc.property(layers, where, anyOverride, anySettings, fc.nat(4), fc.boolean(), (before, place, override, settings, which, isGiven) => {
      const source: Readonly<Record<string, unknown>> = place === 'all' || place === 'bot' ? { ...settings } : { ...override }
      const key = Object.keys(source)[which]!
      const nothing = { host: null, security: null, ask: null, node: null, elevated: null }
      const after = { ...before, [place]: { ...(before[place] ?? nothing), [key]: source[key] } }
      const found = ({ byId, byName, claimed, all, bot }: typeof before): ResolvedExec => {
        const tools = {
          defaults: { ...all, allowed_hosts: null },
          agents: { bot: { ...bot, allowed_hosts: null } },
          sandbox: {} as ToolsSettings['sandbox'],
          always_ask: [],
        }
        return narrowedBy(resolved(placesOf(tools, 'bot', together(byId, byName), isGiven)), settingsOf(claimed))
      }
      const [one, other] = [found(before), found(after)]
      for (const setting of SETTINGS) {
        if ((TOUCHES[key] ?? [key]).includes(setting)) continue
        // The default of security depends on the host, because a sandbox does not put this host at risk.
        if (setting === 'security' && one.from.security === 'default' && one.host !== other.host) continue
        assert.equal(other[setting], one[setting], setting)
      }
    }),
    { seed: 20_261_126, numRuns: 3_000 },
  )
})

test('O7: elevated overrides the settings of its place, off restores them, and a bound node stays bound', () => {
  const set = { host: 'node', security: 'deny', ask: 'always', node: 'bob', elevated: null } as const
  const saved = { host: null, security: 'allowlist', ask: 'on-miss', node: 'carol', elevated: null } as const
  const nothing = { host: null, security: null, ask: null, node: null, elevated: null } as const
  const text = (...places: readonly (ModeOverride | null)[]): string => overrideText(together(...places))
  assert.equal(text({ ...set, elevated: 'on' }, saved), 'host=gateway security=full ask=always node=bob')
  assert.equal(text({ ...set, elevated: 'full' }, saved), 'host=gateway security=full ask=off node=bob')
  assert.equal(text({ ...nothing, elevated: 'on' }, saved), 'host=gateway security=full ask=on-miss node=carol')
  assert.equal(text(set, saved), 'host=node security=deny ask=always node=bob')
  assert.equal(text({ ...nothing, ask: 'off' }, { ...saved, elevated: 'ask' }), 'host=gateway security=full ask=off node=carol')
  assert.equal(text(null, null), 'as configured')
})

/** The width of each setting, counted from its strictest value. */
const width = ({ security, ask, ask_fallback }: Pick<ResolvedExec, 'security' | 'ask' | 'ask_fallback'>): readonly number[] => [
  SECURITIES.indexOf(security),
  ASKS.indexOf(ask),
  ASK_FALLBACKS.indexOf(ask_fallback),
]
const isWithin = (one: readonly number[], other: readonly number[]): boolean => one.every((value, at) => value <= other[at]!)

test('B23 B27: property: settings are never wider than the operator configured, with any preference or label of a client', () => {
  const places = fc.record({ all: anyTable, bot: anyTable, override: fc.option(anyOverride), isGiven: fc.boolean(), wish: anySettings })
  fc.assert(
    fc.property(places, ({ all, bot, override, isGiven, wish }) => {
      const table = ({ settings, allowed_hosts }: typeof all): ToolsSettings['defaults'] => ({ ...settings, allowed_hosts })
      const tools: ToolsSettings = {
        defaults: table(all),
        agents: { bot: table(bot) },
        sandbox: {} as ToolsSettings['sandbox'],
        always_ask: [],
      }
      const of = (label: string, given: boolean, parameter = NO_SETTINGS): ReturnType<typeof resolveExec> =>
        resolveExec({ ...placesOf(tools, label, override, given), parameter })
      const found = of('bot', isGiven, wish)
      if (found.kind === 'refused') return
      // The operator set each value, or it is the default, or it is a stricter preference.
      const set = [settingsOf(override), bot.settings, all.settings]
      const says = (key: 'security' | 'ask' | 'ask_fallback', value: string): boolean => set.some((one) => one[key] === value)
      assert.ok(found.security !== 'full' || found.host === 'sandbox' || says('security', 'full'))
      assert.ok(found.security !== 'allowlist' || says('security', 'allowlist') || wish.security === 'allowlist')
      assert.ok(found.ask !== 'off' || says('ask', 'off'))
      assert.ok(found.ask_fallback === 'deny' || says('ask_fallback', 'full') || says('ask_fallback', found.ask_fallback))
      // A preference gives at most the rights without it, on the same host.
      const unwished = of('bot', isGiven, { ...NO_SETTINGS, host: wish.host, node: wish.node })
      assert.ok(unwished.kind === 'resolved' && isWithin(width(found), width(unwished)))
      // A label that the client chose gives at most the rights of a label without a row, and no other host.
      const nobody = of('nobody', false, wish)
      const named = of('bot', false, wish)
      if (named.kind === 'resolved') {
        assert.ok(nobody.kind === 'resolved' && isWithin(width(named), width(nobody)))
        assert.deepEqual([named.host, named.node], [nobody.host, nobody.node])
      }
      const narrower = narrowedBy(found, wish)
      assert.ok(isWithin(width(narrower), width(found)))
      assert.ok(
        isWithin(width(narrower), width({ ...found, ...Object.fromEntries(Object.entries(wish).filter(([, value]) => value !== null)) })),
      )
    }),
    { seed: 20_261_124, numRuns: 3_000 },
  )
})
