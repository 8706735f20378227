// Finds the examples in the pages of docs, so that a test runs the text that a reader copies.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'

import { packageRoot } from '../runtime.mjs'

/** The code blocks between a heading of a page and the next one, in order. */
const snippetsBelow = (page, heading) => {
  const snippets = []
  let isBelow = false
  let open = null
  for (const line of readFileSync(join(packageRoot, 'docs', page), 'utf8').split('\n')) {
    const [, indent, language] = /^( *)```(\w*)$/.exec(line) ?? []
    if (indent === undefined && open === null && line.startsWith('#')) isBelow = line.replace(/^#+ /, '') === heading
    if (indent === undefined && open !== null) open.text += `${line.slice(open.indent.length)}\n`
    if (indent === undefined) continue
    if (open === null) open = { language, indent, text: '' }
    else {
      if (isBelow) snippets.push(open)
      open = null
    }
  }
  return snippets
}

/** The first code block of this language below a heading of a page, or another one by its index. */
export const snippetOf = (page, heading, language, index = 0) => {
  const found = snippetsBelow(page, heading).filter((one) => one.language === language)[index]
  assert.ok(found, `docs/${page} has no example ${index + 1} in ${language} below "${heading}"`)
  return found.text
}

/** The example, with a value of the test instead of the value on the page. */
export const withValue = (snippet, shown, value) => {
  assert.equal(snippet.split(shown).length, 2, `"${shown}" is not once in:\n${snippet}`)
  return snippet.replace(shown, () => value)
}

/** The token and the signer in the examples of the pages. */
export const SHOWN_TOKEN = 'x0xe1.hlgg…'
export const SHOWN_SIGNER = '6a6b579c0a6430e5b45cf9a61b766cba8a2e2e520f11b3dcbea4c8d3ccd29828'
