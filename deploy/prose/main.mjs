// Checks the language of the README, the changelog, the pages and decisions of docs, comments, titles of tests and the commit subjects:
// `npm run check language`.
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'

const MEASURE = join(packageRoot, 'deploy/prose/prose.mjs')
const limits = (name) => join(packageRoot, `deploy/prose/${name}.json`)

/** Headings of docs/README.md whose pages tell the reader what to do. */
const GUIDES = ['Tutorials', 'How-to guides']

const guides = () => {
  const sections = readFileSync(join(packageRoot, 'docs/README.md'), 'utf8').split(/^## /m)
  const named = sections.filter((section) => GUIDES.some((heading) => section.startsWith(`${heading}\n`)))
  if (named.length !== GUIDES.length) throw new Error(`docs/README.md lacks a heading of ${GUIDES.join(', ')}`)
  return ['README.md', ...named.flatMap((section) => [...section.matchAll(/\]\(([\w-]+\.md)\)/g)].map(([, name]) => `docs/${name}`))]
}

/** Directories whose comments and titles of tests are checked. */
const SOURCES = ['src', 'test', 'e2e', 'bench', 'deploy']

/** Longest subject of a commit. */
const MAX_SUBJECT = 72

const git = (...args) => execFileSync('git', args, { cwd: packageRoot, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })

/** Subjects that are too long, of the commits since this check exists. None where the sources came without git. */
const longSubjects = () => {
  if (!existsSync(join(packageRoot, '.git'))) return []
  const first = git('log', '--diff-filter=A', '--format=%H', '--', 'deploy/prose/main.mjs').trim().split('\n').at(-1)
  if (!first) return []
  return git('log', '--format=%s', `${first}..`)
    .split('\n')
    .filter((subject) => subject.length > MAX_SUBJECT)
}

/** Most words of one change in the changelog. */
const MAX_CHANGE = 40

/** Numbers of the lines of the changelog that describe a change in too many words. */
const longChanges = () =>
  readFileSync(join(packageRoot, 'CHANGELOG.md'), 'utf8')
    .split('\n')
    .flatMap((line, index) => (line.startsWith('- ') && line.slice(2).trim().split(/\s+/).length > MAX_CHANGE ? [index + 1] : []))

/** Runs the measurement. Prints what it says and returns whether it found a fault. */
const fails = (...args) => {
  const { status, stdout, stderr } = spawnSync(process.execPath, [MEASURE, ...args], { cwd: packageRoot, encoding: 'utf8' })
  if (status !== 0) console.log((stdout + stderr).trim())
  return status !== 0
}

const pages = globSync(['README.md', 'docs/*.md', 'docs/adr/*.md'], { cwd: packageRoot })
const told = guides()
const [instructions, others] = [pages.filter((page) => told.includes(page)), pages.filter((page) => !told.includes(page))]
const subjects = longSubjects()
for (const subject of subjects) console.log(`commit subject over ${MAX_SUBJECT} characters: ${subject}`)
const changes = longChanges()
for (const line of changes) console.log(`CHANGELOG.md:${line}: over ${MAX_CHANGE} words`)
const failed = [
  fails('--check', limits('limits-guides'), ...instructions),
  fails('--check', limits('limits-docs'), ...others),
  fails('--words', limits('retired-words'), 'CHANGELOG.md', ...pages),
  fails('--comments', '--check', limits('limits-comments'), ...SOURCES),
  fails('--comments', '--words', limits('retired-words'), ...SOURCES),
  subjects.length > 0,
  changes.length > 0,
]
process.exitCode = failed.includes(true) ? 1 : 0
