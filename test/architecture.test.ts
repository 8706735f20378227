import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { LAYERS, RULES } from './support/house-rules.ts'
import { parseSource, readSources, type Source } from './support/sources.ts'

const ROOT = join(import.meta.dirname, '..')
const sources = readSources(ROOT, 'src')

type RuleName = keyof typeof RULES

const STATEMENTS: Record<RuleName, string> = {
  names: 'file names are specific and in kebab-case, and every file is in a known folder',
  resolved: 'every relative import names an existing source file with its extension',
  layers: 'a folder imports only itself and folders before it',
  programs: 'a program does not import from another program',
  cycles: 'imports do not form a cycle, not even imports of types',
  barrels: 'no file is a barrel or has a default export',
  owners: 'a package is imported only by the folders and files that may use it',
  identityCrypto: 'only identity/ uses keys, signatures and ciphers of node:crypto',
  pureProtocol: 'protocol/ uses no I/O, no clock and no random numbers',
  noShell: 'no program is started through a shell',
  boundary: 'code of the network process uses the executor only through executor-api',
  processes: 'each program loads only the files and packages that it may load',
  apart: 'the SDK (x0x/client) imports only the protocol',
  page: 'the page imports only itself, the protocol and the display of text, and no other code imports it',
  quietImports: 'importing a file has no side effects',
  entryPoints: 'the entry points are exactly the listed files, and every other file is imported',
  sizes: 'a file has at most 350 lines of code and a function at most 60',
  typeNames: 'no two files export types with the same name',
  smallFiles: 'a file below 40 lines is an entry point, loaded on demand, imported by three files, or a listed exception',
}

test('the rules have read every source file', () => {
  const onDisk = readdirSync(join(ROOT, 'src'), { recursive: true }).filter((path) => /\.tsx?$/.test(String(path)))
  assert.equal(sources.length, onDisk.length)
  assert.ok(sources.length >= 60, `only ${sources.length} files`)
  const imports = sources.reduce((count, source) => count + source.imports.length, 0)
  assert.ok(imports >= sources.length, `only ${imports} imports`)
  for (const folder of LAYERS) {
    assert.ok(
      sources.some(({ path }) => path.startsWith(`src/${folder}/`)),
      `nothing in ${folder}/`,
    )
  }
})

test('every folder of src/ has a position in the order of imports', () => {
  const folders = readdirSync(join(ROOT, 'src'), { withFileTypes: true }).map((entry) => entry.name)
  assert.deepEqual(
    folders.filter((name) => !LAYERS.includes(name)),
    [],
  )
})

for (const [name, statement] of Object.entries(STATEMENTS)) {
  test(statement, () => assert.deepEqual(RULES[name as RuleName](sources), []))
}

/** Files that break exactly the rule of their key. */
const BAD: Record<RuleName, Record<string, string>[]> = {
  names: [
    { 'src/base/fooBar.ts': 'export const a = 1' },
    { 'src/base/utils.ts': 'export const a = 1' },
    { 'src/base/utils/a.ts': 'export const a = 1' },
    { 'src/extra/a.ts': 'export const a = 1' },
  ],
  resolved: [{ 'src/base/a.ts': "import { b } from './b'", 'src/base/b.ts': 'export const b = 1' }],
  layers: [
    { 'src/base/a.ts': "import { b } from '../protocol/b.ts'", 'src/protocol/b.ts': 'export const b = 1' },
    { 'src/policy/a.ts': "import type { B } from '../executor/b.ts'", 'src/executor/b.ts': 'export type B = 1' },
    { 'src/executor-api/a.ts': "import { b } from '../identity/b.ts'", 'src/identity/b.ts': 'export const b = 1' },
    { 'src/mesh/a.ts': "export { b } from '../exec/b.ts'", 'src/exec/b.ts': 'export const b = 1' },
    { 'src/links/a.ts': "export const f = () => import('../exec/b.ts')", 'src/exec/b.ts': 'export const b = 1' },
  ],
  programs: [
    { 'src/programs/x0x/a.ts': "import { b } from '../rexd/b.ts'", 'src/programs/rexd/b.ts': 'export const b = 1' },
    { 'src/programs/rexd/a.ts': "import type { B } from '../x0xd/b.ts'", 'src/programs/x0xd/b.ts': 'export type B = 1' },
  ],
  cycles: [
    { 'src/links/a.ts': "import { b } from './b.ts'", 'src/links/b.ts': "import type { A } from './a.ts'" },
    { 'src/links/a.ts': "import './b.ts'", 'src/links/b.ts': "import './c.ts'", 'src/links/c.ts': "import './a.ts'" },
  ],
  barrels: [
    { 'src/links/all.ts': "export { b } from './b.ts'\nexport * from './b.ts'", 'src/links/b.ts': 'export const b = 1' },
    { 'src/sdk/other.ts': "export { b } from './b.ts'", 'src/sdk/b.ts': 'export const b = 1' },
    { 'src/links/index.ts': 'export const a = 1' },
    { 'src/links/a.ts': 'export default 1' },
  ],
  owners: [
    { 'src/exec/a.ts': "import { createLibp2p } from 'libp2p'" },
    { 'src/doors/rest/a.ts': "import { peerIdFromString } from '@libp2p/peer-id'" },
    { 'src/links/a.ts': "import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'" },
    { 'src/programs/x0x/a.ts': "import { z } from 'zod'" },
    { 'src/policy/a.ts': "import { parse } from 'smol-toml'" },
    { 'src/supervision/a.ts': "import { pino } from 'pino'" },
    { 'src/exec/a.ts': "import { encode } from 'cbor-x/encode'" },
    { 'src/protocol/a.ts': "import { Decoder } from 'cbor-x'" },
    { 'src/executor/a.ts': "import { spawn } from 'node:child_process'" },
    { 'src/executor/a.ts': "export const f = () => import('child_process')" },
    { 'src/supervision/a.ts': "import { spawn } from 'node:child_process'" },
    { 'src/sdk/session.ts': "import { spawn } from 'node:child_process'" },
    { 'src/sdk/session.ts': "import { WebSocket } from 'ws'" },
    { 'src/exec/a.ts': "import left from 'left-pad'" },
  ],
  identityCrypto: [
    { 'src/links/a.ts': "import { createCipheriv } from 'node:crypto'" },
    { 'src/links/a.ts': "import * as crypto from 'node:crypto'" },
    { 'src/executor/a.ts': "import { randomBytes, sign } from 'node:crypto'" },
  ],
  pureProtocol: [
    { 'src/protocol/a.ts': "import { readFileSync } from 'node:fs'" },
    { 'src/protocol/a.ts': 'export const a = () => Date.now()' },
    { 'src/protocol/a.ts': 'export const a = () => new Date()' },
    { 'src/protocol/a.ts': 'export const a = () => Math.random()' },
    { 'src/protocol/a.ts': 'export const a = () => process.pid' },
    { 'src/protocol/a.ts': "export const a = () => console.log('')" },
  ],
  noShell: [{ 'src/process/a.ts': "export const f = (spawn: any) => spawn('a', [], { shell: true })" }],
  boundary: [
    { 'src/exec/a.ts': "import { b } from '../policy/b.ts'", 'src/policy/b.ts': 'export const b = 1' },
    { 'src/mesh/a.ts': "import type { B } from '../trust/b.ts'", 'src/trust/b.ts': 'export type B = 1' },
    { 'src/doors/rest/a.ts': "import { b } from '../../executor/b.ts'", 'src/executor/b.ts': 'export const b = 1' },
    {
      'src/exec/a.ts': "import { b } from '../identity/b.ts'",
      'src/identity/b.ts': "import { c } from './agent-key.ts'",
      'src/identity/agent-key.ts': 'export const c = 1',
    },
  ],
  processes: [
    { 'src/programs/x0xd/main.ts': "import { d } from '../../doors/d.ts'", 'src/doors/d.ts': 'export const d = 1' },
    { 'src/programs/x0xd/main.ts': "import { a } from './a.ts'", 'src/programs/x0xd/a.ts': "import { createLibp2p } from 'libp2p'" },
    {
      'src/programs/x0xd-network/main.ts': "import { a } from './a.ts'",
      'src/programs/x0xd-network/a.ts': "import type { P } from '../../policy/p.ts'",
      'src/policy/p.ts': 'export type P = 1',
    },
    {
      'src/programs/x0xd-network/main.ts': "import { k } from '../../identity/agent-key.ts'",
      'src/identity/agent-key.ts': 'export const k = 1',
    },
    {
      'src/programs/x0xd-network/main.ts': "import { run } from '../../executor/runs/run.ts'",
      'src/executor/runs/run.ts': 'export const run = 1',
    },
    { 'src/programs/x0xd-network/main.ts': "import { spawn } from 'node:child_process'" },
    { 'src/programs/x0xd-network/main.ts': "export const f = () => import('node:worker_threads')" },
    { 'src/programs/rexd/main.ts': "import { createLibp2p } from 'libp2p'" },
    { 'src/programs/mcp/main.ts': "import { createLibp2p } from 'libp2p'" },
    { 'src/programs/console/main.ts': "import { WebSocket } from 'ws'" },
    { 'src/programs/rexec/main.ts': "import { p } from '../../policy/p.ts'", 'src/policy/p.ts': 'export const p = 1' },
    { 'src/programs/rexd/main.ts': "import { link } from '../../links/link.ts'", 'src/links/link.ts': 'export const link = 1' },
  ],
  apart: [
    {
      'src/sdk/entry.ts': "export { a } from './a.ts'",
      'src/sdk/a.ts': "import { b } from '../base/b.ts'",
      'src/base/b.ts': 'export const b = 1',
    },
  ],
  page: [
    { 'src/web/main.tsx': "import { a } from '../base/clock.ts'", 'src/base/clock.ts': 'export const a = 1' },
    { 'src/doors/a.ts': "import { a } from '../web/a.ts'", 'src/web/a.ts': 'export const a = 1' },
  ],
  quietImports: [{ 'src/programs/x0x/a.ts': "console.log('hello')" }, { 'src/programs/x0x/a.ts': 'if (Math.PI > 3) throw new Error()' }],
  entryPoints: [
    {
      'src/programs/x0x/main.ts': '',
      'src/sdk/entry.ts': '',
      'src/programs/x0xd/main.ts': '',
      'src/programs/x0xd-network/main.ts': '',
      'src/programs/rexd/main.ts': '',
      'src/programs/mcp/main.ts': '',
      'src/programs/ui/main.ts': '',
      'src/programs/desk/main.ts': '',
      'src/programs/bundle/main.ts': '',
      'src/web/main.tsx': '',
      'src/web/sign-in.ts': '',
      'src/programs/console/main.ts': '',
      'src/programs/rexec/main.ts': '',
      'src/programs/rexec-mcp/main.ts': '',
      'src/process/terminal-main.ts': '',
      'src/base/own-pipes.ts': '',
      'src/links/forgotten.ts': 'export const a = 1',
    },
    { 'src/programs/x0x/main.ts': '' },
  ],
  sizes: [
    { 'src/base/a.ts': 'export const a = 1\n'.repeat(351) },
    { 'src/base/a.ts': `export const f = () => {\n${'  f()\n'.repeat(59)}}` },
    { 'src/base/a.ts': `class A {\n  m() {\n${'    this.m()\n'.repeat(59)}  }\n}` },
    { 'src/base/a.ts': `export function f() {\n${'  f()\n'.repeat(59)}}` },
  ],
  typeNames: [
    { 'src/base/a.ts': 'export interface A {}', 'src/links/b.ts': 'export class A {}' },
    { 'src/base/a.ts': 'export type A = 1', 'src/links/b.ts': 'export interface A {}' },
  ],
  smallFiles: [
    { 'src/base/a.ts': 'export const a = 1', 'src/links/b.ts': "import { a } from '../base/a.ts'\nexport const b = a\n".repeat(20) },
    {
      'src/base/a.ts': 'export const a = 1',
      'src/programs/x0x/main.ts': "import { a } from '../../base/a.ts'",
      'src/programs/rexd/main.ts': "import { a } from '../../base/a.ts'",
    },
  ],
}

const parsed = (files: Record<string, string>): Source[] => Object.entries(files).map(([path, text]) => parseSource(path, text))

for (const [name, examples] of Object.entries(BAD)) {
  test(`the rule "${STATEMENTS[name as RuleName]}" fails for files that break it`, () => {
    for (const files of examples) assert.notDeepEqual(RULES[name as RuleName](parsed(files)), [], JSON.stringify(files))
  })
}

test('files that follow the rules pass all of them', () => {
  const good = parsed({
    'src/base/log.ts': "import { pino } from 'pino'\nexport const log = () => pino()",
    'src/executor-api/client.ts': `${'// why\n'.repeat(39)}export const client = () => import('../base/log.ts')`,
    'src/exec/run.ts': "import { client } from '../executor-api/client.ts'\nexport const run = () => client()",
    'src/sdk/entry.ts': "export { connect } from './client.ts'",
    'src/sdk/client.ts': `${'\n'.repeat(39)}export const connect = async () => 0`,
    'src/programs/x0xd/main.ts': 'export const main = async () => 0',
    'src/programs/x0xd-network/main.ts': "import { run } from '../../exec/run.ts'\nexport const main = async () => run()",
    'src/programs/rexd/main.ts': "import { run } from '../../exec/run.ts'\nexport const main = async () => run()",
    'src/programs/mcp/main.ts': "import { run } from '../../exec/run.ts'\nexport const main = async () => run()",
    'src/programs/ui/main.ts': 'export const main = async () => 0',
    'src/programs/desk/main.ts': 'export const main = async () => 0',
    'src/programs/bundle/main.ts': 'export const main = async () => 0',
    'src/web/main.tsx': "import { render } from 'preact'\nexport const main = () => render(null)",
    'src/web/sign-in.ts': 'export const main = () => 0',
    'src/programs/console/main.ts': "import { run } from '../../exec/run.ts'\nexport const main = async () => run()",
    'src/programs/rexec/main.ts': 'export const main = async () => 0',
    'src/programs/rexec-mcp/main.ts': 'export const main = async () => 0',
    'src/process/terminal-main.ts': 'export const main = async () => 0',
    'src/base/own-pipes.ts': 'export const main = async () => 0',
    'src/programs/x0x/main.ts': `export const main = async () => {\n${'  main()\n'.repeat(58)}}`,
  })
  for (const rule of Object.values(RULES)) assert.deepEqual(rule(good), [])
})
