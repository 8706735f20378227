import assert from 'node:assert/strict'
import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { isAppError } from '../../src/base/errors.ts'
import { readRexdConfig } from '../../src/config/rexd-config.ts'
import { loadTools } from '../../src/config/rexd-config.ts'
import { NO_SETTINGS, resolveExec } from '../../src/policy/modes.ts'
import { placesOf, settingsOf, type ToolsSettings } from '../../src/policy/modes.ts'
import { DEFAULT_SANDBOX } from '../../src/policy/sandbox/sandbox-settings.ts'
import { tempDir } from '../support/temp-dir.ts'

// Requirement O6: settings of the execution modes in a configuration.

const ROOT = '[[security.allowed_roots]]\npath = "/usr"\n'
const NOTHING = { ...NO_SETTINGS, allowed_hosts: null }

const fileOf = async (t: TestContext, text: string): Promise<string> => {
  const file = join(await tempDir(t), 'config.toml')
  await writeFile(file, text, { mode: 0o600 })
  return file
}

const toolsOf = async (t: TestContext, text: string): Promise<ToolsSettings | undefined> => {
  const { config, problems } = await readRexdConfig(await fileOf(t, `${text}\n${ROOT}`), {})
  assert.deepEqual(problems, [])
  return config?.tools
}

const hasProblem = async (t: TestContext, text: string, problem: RegExp): Promise<void> => {
  const { problems } = await readRexdConfig(await fileOf(t, `${text}\n${ROOT}`), {})
  assert.equal(problems.length, 1, `${text}: ${problems.join('\n') || 'no problem found'}`)
  assert.match(problems[0]!.replace(/^.*\/config\.toml:/, ''), problem)
}

test('O6: the file and each agent set host, security, ask, fallback and node independently', async (t) => {
  const tools = await toolsOf(
    t,
    `[tools.exec]
host = "gateway"
security = "allowlist"
ask = "always"
ask_fallback = "allowlist"
node = "bob"
allowed_hosts = ["sandbox", "node"]
[tools.exec.sandbox]
readable = ["/opt/tools"]
max_memory_bytes = 67108864
max_processes = 64
[[agents.list]]
id = "reviewer"
[agents.list.tools.exec]
host = "sandbox"
[[agents.list]]
id = "__proto__"
[agents.list.tools.exec]
security = "deny"
`,
  )
  assert.ok(tools)
  const { defaults, agents, sandbox } = tools
  assert.deepEqual(defaults, {
    host: 'gateway',
    security: 'allowlist',
    ask: 'always',
    ask_fallback: 'allowlist',
    node: 'bob',
    allowed_hosts: ['sandbox', 'node'],
  })
  assert.deepEqual({ ...agents['reviewer'] }, { ...NOTHING, host: 'sandbox' })
  assert.deepEqual(Object.keys(agents), ['reviewer', '__proto__'])
  assert.deepEqual([sandbox.engine, sandbox.network, sandbox.readable], ['bubblewrap', false, ['/opt/tools']])
  assert.deepEqual([sandbox.max_memory_bytes, sandbox.max_processes], [67_108_864, 64])
  assert.ok(Object.isFrozen(tools) && Object.isFrozen(defaults) && Object.isFrozen(agents))
})

test('a file without [tools.exec] has no modes, and an empty table has the safest defaults', async (t) => {
  assert.equal(await toolsOf(t, ''), undefined)
  const tools = await toolsOf(t, '[tools.exec]')
  assert.deepEqual([tools?.defaults, tools?.sandbox], [NOTHING, DEFAULT_SANDBOX])
  const { host, security, ask, ask_fallback, node } = resolvedOf(tools!, 'anybody')
  assert.deepEqual([host, security, ask, ask_fallback, node], ['sandbox', 'full', 'on-miss', 'deny', null])
  const onHost = resolvedOf((await toolsOf(t, '[tools.exec]\nhost = "gateway"'))!, 'anybody')
  assert.deepEqual([onHost.host, onHost.security, onHost.ask], ['gateway', 'deny', 'on-miss'])
})

const resolvedOf = (tools: ToolsSettings, label: string, wish: Partial<typeof NO_SETTINGS> = {}) => {
  const resolved = resolveExec({ parameter: { ...NO_SETTINGS, ...wish }, ...placesOf(tools, label, null) })
  assert.ok(resolved.kind === 'resolved')
  return resolved
}

test('an invalid setting is reported with its line', async (t) => {
  await hasProblem(t, '[tools.exec]\nhost = "here"', /^2: tools\.exec\.host: must be one of sandbox, gateway, node, not "here"$/)
  await hasProblem(t, '[tools.exec]\n\nsecurity = true', /^3: tools\.exec\.security: must be one of deny, allowlist, full, not true$/)
  await hasProblem(t, '[tools.exec]\nask = "never"', /^2: tools\.exec\.ask: must be one of always, on-miss, off, not "never"$/)
  await hasProblem(t, '[tools.exec]\nask_fallback = "ask"', /^2: tools\.exec\.ask_fallback: must be one of deny, allowlist, full/)
  await hasProblem(t, '[tools.exec]\nelevated = "on"', /^2: tools\.exec\.elevated: unknown key; known keys: host, security, ask,/)
  await hasProblem(t, '[tools.exec]\nallowed_hosts = ["gateway", "moon"]', /^2: tools\.exec\.allowed_hosts\[1\]: must be one of /)
  await hasProblem(t, '[tools.exec]\nnode = ""', /^2: tools\.exec\.node: is empty$/)
  await hasProblem(t, '[tools.exec.sandbox]\nmax_memory_bytes = 1024', /^2: tools\.exec\.sandbox\.max_memory_bytes: /)
  await hasProblem(t, '[tools.exec.sandbox]\nimage = "debian"', /^2: tools\.exec\.sandbox\.image: /)
  await hasProblem(
    t,
    '[tools.exec.sandbox]\nengine = "chroot"',
    /^2: tools\.exec\.sandbox\.engine: must be one of bubblewrap, podman, docker/,
  )
  await hasProblem(t, '[tools.exec.sandbox]\nengine = "podman"', /tools\.exec\.sandbox\.image: is required with engine = "podman"/)
  await hasProblem(
    t,
    '[tools.exec.sandbox]\nengine = "docker"\nimage = "--all"',
    /^3: tools\.exec\.sandbox\.image: must be the name of an image/,
  )
  await hasProblem(t, '[tools.exec.sandbox]\nreadable = ["tools"]', /^2: tools\.exec\.sandbox\.readable: "tools" must be an absolute path/)
  await hasProblem(
    t,
    '[[agents.list]]\nid = "a"',
    /^1: agents\.list\[0\]\.tools: is required: write \[agents\.list\.tools\.exec\] below it$/,
  )
  await hasProblem(t, '[[agents.list]]\n[agents.list.tools.exec]\nhost = "node"', /^1: agents\.list\[0\]\.id: is required/)
  const twice = '[[agents.list]]\nid = "a"\n[agents.list.tools.exec]\n'
  await hasProblem(t, `${twice}${twice}`, /^5: agents\.list\[1\]\.id: "a" is listed twice$/)
  await hasProblem(t, '[[agents.list]]\nid = "a"\n[agents.list.tools.exec]\nalways_ask = []', /always_ask: unknown key/)
})

test('a console configuration has only these tables, and is refused if others may write it', async (t) => {
  const file = await fileOf(t, '[tools.exec]\nhost = "gateway"\nsecurity = "full"\n')
  assert.equal((await loadTools(file)).tools.defaults.host, 'gateway')
  const refused = async (text: string, why: RegExp): Promise<void> => {
    const other = await fileOf(t, text)
    await assert.rejects(loadTools(other), (error) => isAppError(error, 'bad_config') && why.test(error.message))
  }
  await refused('[security]\nallow_shell = true\n[tools.exec]\n', /security: unknown key; known keys: tools, agents/)
  await refused('', /\[tools\.exec\] is required/)
  await chmod(file, 0o666)
  await assert.rejects(loadTools(file), (error) => isAppError(error, 'bad_config'))
})

test('O7: elevated overrides the other settings, and off restores them', () => {
  const set = { host: 'sandbox', security: 'allowlist', ask: 'on-miss', node: null } as const
  const of = (elevated: 'on' | 'ask' | 'full' | null) => settingsOf({ ...set, elevated })
  assert.deepEqual(of(null), { ...set, ask_fallback: null })
  const elevated = { host: 'gateway', security: 'full', ask_fallback: null, node: null }
  assert.deepEqual(of('on'), { ...elevated, ask: 'on-miss' })
  assert.deepEqual(of('ask'), { ...elevated, ask: 'always' })
  assert.deepEqual(of('full'), { ...elevated, ask: 'off' })
})

test('O4: the call overrides the session, the agent and the file, but can only narrow security and ask', async (t) => {
  const text = '[tools.exec]\nhost = "gateway"\nsecurity = "allowlist"\nask = "on-miss"\nallowed_hosts = ["gateway", "node"]\n'
  const tools = (await toolsOf(t, `${text}[[agents.list]]\nid = "wide"\n[agents.list.tools.exec]\nsecurity = "full"\nask = "off"\n`))!
  const session = { host: null, security: 'deny', ask: null, node: null, elevated: null } as const
  const set = resolveExec({ parameter: NO_SETTINGS, ...placesOf(tools, 'wide', session) })
  assert.ok(set.kind === 'resolved')
  assert.deepEqual([set.security, set.ask, set.from.security, set.from.ask], ['deny', 'off', 'session', 'agent'])
  const narrowed = resolvedOf(tools, 'wide', { security: 'allowlist', ask: 'always', host: 'node', node: 'bob' })
  assert.deepEqual(
    [narrowed.host, narrowed.node, narrowed.security, narrowed.ask, narrowed.cuts],
    ['node', 'bob', 'allowlist', 'always', []],
  )
  const widened = resolvedOf(tools, 'other', { security: 'full', ask: 'off' })
  assert.deepEqual([widened.security, widened.ask], ['allowlist', 'on-miss'])
  assert.deepEqual(
    widened.cuts.map(({ key, got }) => [key, got]),
    [
      ['security', 'allowlist'],
      ['ask', 'on-miss'],
    ],
  )
  const closed = resolveExec({ parameter: { ...NO_SETTINGS, host: 'sandbox' }, ...placesOf(tools, 'other', null) })
  assert.deepEqual(closed, { kind: 'refused', key: 'host', asked: 'sandbox', allowed: ['gateway', 'node'] })
})

test('a setting that would show the home directory in a sandbox is refused', async (t) => {
  await hasProblem(t, '[tools.exec]\n[tools.exec.sandbox]\nallow_home = true\n', /tools\.exec\.sandbox\.allow_home: unknown key/)
})
