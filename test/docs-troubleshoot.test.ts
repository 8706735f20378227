import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'

import { denialLines, outcomeLines, type RunFacts } from '../src/programs/x0x/outcome.ts'
import { DENIAL_REASONS, WARNING_KINDS } from '../src/protocol/reasons.ts'

const ROOT = join(import.meta.dirname, '..')
const PAGE = readFileSync(join(ROOT, 'docs/troubleshoot.md'), 'utf8')
const SOURCES = globSync('src/**/*.ts', { cwd: ROOT }).map((file) => readFileSync(join(ROOT, file), 'utf8').replaceAll(String.raw`\'`, "'"))

/** Texts that programs print, from the code in the first column of the symptom tables. */
const symptoms = (markdown: string): string[] =>
  markdown
    .split(/^\| you see .*$/m)
    .slice(1)
    .flatMap((table) => (/^[^]*?\n(?=\n|$)/.exec(table)?.[0] ?? table).split('\n'))
    .flatMap((line) => [...(/^\| (.+?) \| /.exec(line)?.[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, text = '']) => text))
    .filter((text) => !text.startsWith('--') && !/^x0xd? /.test(text))

/** Texts of `x0x exec` for each denial and for each way in which a run ends. */
const spoken = (): string[] => {
  const facts: RunFacts = { agent: 'bob', argv: ['true'], timed: false, own: null }
  const exit = { type: 'exit', request_id: '', code: 0, signal: null, denial_reason: null, incomplete: false, message: null } as const
  const ends = [facts, { ...facts, timed: true }].flatMap((each) =>
    WARNING_KINDS.flatMap((kind) => outcomeLines({ ...exit, warnings: [kind] } as unknown as Parameters<typeof outcomeLines>[0], each)),
  )
  return [...DENIAL_REASONS.flatMap((reason) => denialLines(reason, facts)), ...ends]
}

/** Parts of a text around `…`, which replaces variable parts. */
const partsOf = (text: string): string[] =>
  text
    .split('…')
    .map((part) => part.trim())
    .filter((part) => part.length > 1)

const isSaid = (text: string, spokenLines: readonly string[]): boolean =>
  [...spokenLines, ...SOURCES].some((said) => {
    let from = 0
    return partsOf(text).every((part) => {
      const at = said.indexOf(part, from)
      from = at + part.length
      return at !== -1
    })
  })

test('the programs print every text of the symptom page', () => {
  const [texts, said] = [symptoms(PAGE), spoken()]
  assert.ok(texts.length > 40, `${texts.length} texts`)
  assert.deepEqual(
    texts.filter((text) => !isSaid(text, said)),
    [],
  )
})

test('a text that no program prints is found', () => {
  const page =
    '| you see | x | y |\n|---|---|---|\n| `the local daemon does not answer` | a | b |\n| `the local daemon is … asleep` | a | b |\n\n`no row`\n'
  assert.deepEqual(symptoms(page), ['the local daemon does not answer', 'the local daemon is … asleep'])
  assert.deepEqual(
    symptoms(page).map((text) => isSaid(text, [])),
    [true, false],
  )
})
