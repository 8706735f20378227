import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { parseToml } from '../src/base/toml-file.ts'
import { parseMcpFlags } from '../src/programs/mcp/flags.ts'

const PAGE = readFileSync(join(import.meta.dirname, '../docs/agents.md'), 'utf8')

/** Under which key each runtime has its servers. */
const SERVERS = ['mcpServers', 'mcp_servers', 'servers', 'context_servers'] as const

interface Entry {
  readonly command: string
  readonly args: readonly string[]
}

const blocks = (language: string): string[] =>
  [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, 'gms'))].map(([, text = '']) => text)

const entryOf = (file: Record<string, unknown>): Entry[] =>
  SERVERS.flatMap((key) => Object.values((file[key] ?? {}) as Record<string, Entry>))

test('every file for a runtime of agents that is shown is one, and starts the server as it may be started', () => {
  const json = blocks('json').map((text) => JSON.parse(text) as Record<string, unknown>)
  const toml = blocks('toml').map((text) => parseToml(text, 'agents.md', 'bad_config', { bigints: true }).value)
  const entries = [...json, ...toml].flatMap(entryOf)
  assert.equal(entries.length, 8)
  for (const { command, args } of entries) {
    assert.match(command, /^(\/usr\/local\/bin\/)?x0x$/)
    assert.equal(args[0], 'mcp')
    const flags = parseMcpFlags(args.slice(1))
    assert.ok(typeof flags !== 'string' && flags.mode === 'serve' && flags.config.startsWith('/'))
  }
  assert.deepEqual(new Set(entries.map(({ args }) => args[2])).size, 8)
})
