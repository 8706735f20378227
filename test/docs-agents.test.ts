import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { parseToml } from '../src/base/toml.ts'
import { MCP } from '../src/cli/programs.ts'
import { mcpFlags } from '../src/programs/mcp/flags.ts'
import { lineOf } from './support/line-of.ts'

const PAGE = readFileSync(join(import.meta.dirname, '../docs/ai-agents.md'), 'utf8')
const ACCEPTANCE = readFileSync(join(import.meta.dirname, 'acceptance.md'), 'utf8')

/** Keys under which the different AI agents list their servers. */
const SERVERS = ['mcpServers', 'mcp_servers', 'servers', 'context_servers'] as const

interface Entry {
  readonly command: string
  readonly args: readonly string[]
}

const blocks = (language: string): string[] =>
  [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, 'gms'))].map(([, text = '']) => text)

const entryOf = (file: Record<string, unknown>): Entry[] =>
  SERVERS.flatMap((key) => Object.values((file[key] ?? {}) as Record<string, Entry>))

test('every configuration of an AI agent on the page is valid, and starts x0x mcp with valid options', () => {
  const json = blocks('json').map((text) => JSON.parse(text) as Record<string, unknown>)
  const toml = blocks('toml').map((text) => parseToml(text, 'ai-agents.md', 'bad_config', { bigints: true }).value)
  const all = [...json, ...toml].flatMap(entryOf)
  const entries = all.filter(({ command }) => command !== 'rexec')
  assert.equal(entries.length, 8)
  assert.deepEqual(
    all.filter((entry) => !entries.includes(entry)).map(({ args }) => args.slice(0, 2)),
    [['--mcp-stdio', '--whoami']],
  )
  for (const { command, args } of entries) {
    assert.match(command, /^(\/usr\/local\/bin\/)?x0x$/)
    assert.equal(args[0], 'mcp')
    const flags = mcpFlags(lineOf(MCP, args.slice(1)))
    assert.ok(flags.mode === 'serve' && flags.config.startsWith('/'))
  }
  assert.deepEqual(new Set(entries.map(({ args }) => args[2])).size, 8)
})

test('every requirement of both specifications has exactly one row, with its place and its proof', () => {
  const rows = [...ACCEPTANCE.matchAll(/^\| ([RX]\d+) \| (.+?) \| (.+?) \| (`(?:test|e2e)\/.+?) \| .*\|$/gm)]
  const numbered = (letter: string, count: number): string[] => Array.from({ length: count }, (_, at) => `${letter}${at + 1}`)
  assert.deepEqual(
    rows.map(([, id]) => id),
    [...numbered('R', 21), ...numbered('X', 13)],
  )
})
