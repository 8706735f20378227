import assert from 'node:assert/strict'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { test } from 'node:test'

const ROOT = join(import.meta.dirname, '..')

const PAGES = ['README.md', 'CHANGELOG.md', ...globSync(['docs/**/*.md', 'proto/**/*.md', 'bench/*.md', 'test/*.md'], { cwd: ROOT })]

const withoutBlocks = (markdown: string): string => markdown.replaceAll(/^( *)```[^]*?^\1```$/gm, '')

/** Anchors that common renderers give to headings. They are in lower case with dashes between words, and repeated ones have a number. */
const anchorsOf = (markdown: string): Set<string> => {
  const anchors = new Set<string>()
  for (const [, heading = ''] of withoutBlocks(markdown).matchAll(/^#{1,6} (.+)$/gm)) {
    const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const name = text.replaceAll(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-')
    let anchor = name
    for (let again = 1; anchors.has(anchor); again += 1) anchor = `${name}-${again}`
    anchors.add(anchor)
  }
  for (const [, id = ''] of markdown.matchAll(/<a (?:id|name)="([^"]+)"/g)) anchors.add(id)
  return anchors
}

interface Link {
  readonly file: string
  readonly anchor: string | undefined
}

/** Returns links to files of the repository, without those in code. */
const linksOf = (page: string, markdown: string): Link[] =>
  [
    ...withoutBlocks(markdown)
      .replaceAll(/`[^`\n]*`/g, '')
      .matchAll(/\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)/g),
  ].map(([, path = '', anchor]) => ({
    file: path === '' ? page : join(dirname(page), path),
    anchor,
  }))

const deadLinks = (page: string, markdown: string, read: (file: string) => string | null): string[] =>
  linksOf(page, markdown).flatMap(({ file, anchor }) => {
    const text = read(file)
    const isThere = text !== null && (anchor === undefined || anchorsOf(text).has(anchor))
    return isThere ? [] : [`${page}: ${file}${anchor === undefined ? '' : `#${anchor}`}`]
  })

const readOf = (file: string): string | null => {
  const path = join(ROOT, file)
  return !existsSync(path) ? null : file.endsWith('.md') ? readFileSync(path, 'utf8') : ''
}

test('every link and anchor of a page leads to an existing target', () => {
  const pages = PAGES.map((page) => [page, readFileSync(join(ROOT, page), 'utf8')] as const)
  assert.ok(pages.flatMap(([page, text]) => linksOf(page, text)).length > 300)
  assert.deepEqual(
    pages.flatMap(([page, text]) => deadLinks(page, text, readOf)),
    [],
  )
})

test('the front page of docs links to each page, and each page links back to it', () => {
  const pages = globSync('docs/*.md', { cwd: ROOT }).filter((page) => page !== 'docs/README.md')
  const read = (page: string) => new Set(linksOf(page, readFileSync(join(ROOT, page), 'utf8')).map(({ file }) => relative('.', file)))
  const front = read('docs/README.md')
  assert.deepEqual(
    pages.filter((page) => !front.has(page)),
    [],
    'not on the front page',
  )
  assert.deepEqual(
    pages.filter((page) => !read(page).has('docs/README.md')),
    [],
    'without a way back',
  )
})

test('a link to a missing file or anchor is found', () => {
  const page = '# A & b\n\n[x](y.md) [x](#a--b) [x](#c) [x](z.md#d) [x](z.md#e) `[x](code.md)` [x](https://example.org)\n\n```\n# c\n```\n'
  const read = (file: string): string | null => (file === 'docs/z.md' ? '## D\n' : file === 'docs/a.md' ? page : null)
  assert.deepEqual(deadLinks('docs/a.md', page, read), ['docs/a.md: docs/y.md', 'docs/a.md: docs/a.md#c', 'docs/a.md: docs/z.md#e'])
})
