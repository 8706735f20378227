// Writes those parts of the pages that the code knows (npm run docs). test/docs-generated.test.ts fails if a page is out of date.
import { globSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'
import { filledPage } from './fill.ts'
import { SECTIONS } from './sections.ts'

for (const page of globSync(['README.md', 'docs/*.md', 'test/*.md'], { cwd: packageRoot }).sort()) {
  const path = join(packageRoot, page)
  const before = readFileSync(path, 'utf8')
  const after = await filledPage(before, SECTIONS).catch((error: Error) => {
    throw new Error(`${page}: ${error.message}`)
  })
  if (after === before) continue
  writeFileSync(path, after)
  console.log(`${page} written`)
}
