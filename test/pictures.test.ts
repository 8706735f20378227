import assert from 'node:assert/strict'
import { globSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { test } from 'node:test'

import { SCENES } from '../e2e/pictures/scenes.ts'
import { svgRows } from '../e2e/pictures/terminal-svg.ts'
import { AppError } from '../src/base/errors.ts'
import { helpText } from '../src/cli/help.ts'
import { parseCommandLine } from '../src/cli/parse.ts'
import { X0X } from '../src/cli/x0x.ts'
import { X0XD } from '../src/cli/programs.ts'

const ROOT = join(import.meta.dirname, '..')
const IMAGES = join(ROOT, 'docs/images')
const PROGRAMS = { x0x: X0X, x0xd: X0XD } as const
const MAX_BYTES = 60_000

const svgOf = (name: string): string => readFileSync(join(IMAGES, `${name}.svg`), 'utf8')
const pages = ['README.md', ...globSync(['docs/**/*.md', 'bench/*.md'], { cwd: ROOT })]
  .map((file) => readFileSync(join(ROOT, file), 'utf8'))
  .join('\n')

test('every terminal picture belongs to a scene and is shown on a page', () => {
  const drawn = globSync('terminal-*.svg', { cwd: IMAGES }).map((file) => basename(file, '.svg'))
  assert.deepEqual(drawn.toSorted(), Object.keys(SCENES).toSorted(), 'npm run pictures')
  for (const name of drawn) assert.ok(pages.includes(`images/${name}.svg`), `no page shows ${name}`)
})

test('every picture of the page is shown in the documentation', () => {
  for (const file of globSync('page-*.png', { cwd: IMAGES })) assert.ok(pages.includes(`images/${file}`), `no page shows ${file}`)
})

test('the typed lines of a picture match its scene, and the programs still accept them', () => {
  for (const [name, { panes }] of Object.entries(SCENES)) {
    const typed = svgRows(svgOf(name)).flatMap((row) => /^(\w+)\$ (.+)$/.exec(row)?.slice(1, 3).join(' ') ?? [])
    assert.deepEqual(
      typed,
      panes.flatMap(({ who, steps }) => steps.map(({ line }) => `${who} ${line}`)),
      name,
    )
    for (const { line } of panes.flatMap(({ steps }) => steps)) {
      const [program = '', ...argv] = line.split(' ')
      if (program in PROGRAMS)
        parseCommandLine(PROGRAMS[program as keyof typeof PROGRAMS], argv, (problem) => new AppError('bad_request', `${name}: ${problem}`))
    }
  }
})

test('every command and option in the picture of the help exists', () => {
  const shown = svgRows(svgOf('terminal-help')).flatMap((row) => /^ {2}(?=[-a-z])(?!x0x )(\S+(?:, --\S+)?)/.exec(row)?.[1] ?? [])
  const help = helpText([X0X])
  assert.ok(shown.length > 20)
  assert.deepEqual(
    shown.filter((name) => !help.includes(`\n  ${name}`)),
    [],
  )
})

test('a picture is small, has both colour schemes, and loads no other file', () => {
  for (const file of globSync(['docs/images/*.svg', 'bench/*.svg'], { cwd: ROOT })) {
    const svg = readFileSync(join(ROOT, file), 'utf8')
    assert.ok(svg.length < MAX_BYTES, file)
    assert.match(svg, /prefers-color-scheme:dark/, file)
    assert.doesNotMatch(svg, /<script|href|url\(|@import|@font-face|<image|<foreignObject|\son\w+=/, file)
    assert.doesNotMatch(svg, /\/tmp\//, file)
  }
})
