// Writes those parts of the pages that the code knows (npm run docs). With --check it writes nothing and fails if a page is out of date.
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { filledPage } from './fill.ts'
import { SECTIONS } from './sections.ts'

const check = process.argv.includes('--check')
const outOfDate: string[] = []
for (const page of globSync(['README.md', 'docs/*.md', 'test/*.md'], { cwd: packageRoot }).sort()) {
  const path = join(packageRoot, page)
  const before = readFileSync(path, 'utf8')
  const after = await filledPage(before, SECTIONS).catch((error: Error) => {
    throw new Error(`${page}: ${error.message}`)
  })
  if (after === before) continue
  outOfDate.push(page)
  if (!check) writeFileSync(path, after)
}
for (const page of outOfDate) console.log(check ? `${page} is out of date: npm run docs` : `${page} written`)
process.exitCode = check && outOfDate.length > 0 ? 1 : 0
