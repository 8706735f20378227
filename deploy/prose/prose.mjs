#!/usr/bin/env node
// Measures prose in Markdown files: how long sentences are and how often they use constructions that need a second reading.
//   node prose.mjs FILE|DIR ...            one row for each argument
//   node prose.mjs --each FILE|DIR ...     one row for each file
//   node prose.mjs --sentences 40 FILE...  print sentences of more than 40 words
//   node prose.mjs --check LIMITS.json FILE|DIR ...   exit 1 where a file exceeds a limit
//   node prose.mjs --tables ...            measure the texts in tables (of 8 words or more) instead
//   node prose.mjs --comments DIR ...      measure the comments of source files, and the titles of tests
//   node prose.mjs --words WORDS.json FILE|DIR ...   list retired words, with what to write; exit 1 where there are any
//   node prose.mjs --json ...
// It needs nothing but Node. Code blocks, tables, headings and comments are left out; `code` counts as one word.
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'

let kind = /\.(md|txt)$/
const files = (path) =>
  statSync(path).isDirectory()
    ? readdirSync(path)
        .sort()
        .flatMap((name) => files(join(path, name)))
    : kind.test(path)
      ? [path]
      : []
const SOURCES = /\.(tsx?|mjs)$/
const textOf = (path) => {
  const text = readFileSync(path, 'utf8')
  if (!SOURCES.test(path)) return text
  const comments = [...text.matchAll(/(?<=^|[\s(])\/\*\*?([\s\S]*?)\*\/|((?:^[ \t]*\/\/ ?.*\n)+)/gm)].map(([, a, b]) =>
    (a ?? b).replace(/^\s*(\*|\/\/) ?/gm, ''),
  )
  // The title of a test counts as a sentence.
  const titles = /\.(test|campaign)\.ts$/.test(path) ? text.matchAll(/^\s*(?:await \w+\.)?test\(\s*(['"`])(.*?)\1,/gm) : []
  return [...comments, ...[...titles].map(([, , title]) => `${title[0].toUpperCase()}${title.slice(1)}.`)].join('\n\n')
}

export let tables = false
export function proseOf(text) {
  if (tables)
    text = text
      .replace(/^( *)(```|~~~)[\s\S]*?^\1\2[^\n]*$/gm, '')
      .split('\n')
      .filter((l) => /^\s*\|/.test(l) && !/^\s*\|[\s|:-]*$/.test(l))
      .flatMap((l) => l.replace(/`[^`]*`/g, 'CODE').split(/(?<!\\)\|/))
      .map((c) => c.trim())
      .filter((c) => c.split(/\s+/).length >= 8)
      .join('\n\n')
  text = text
    .replace(/\r/g, '')
    .replace(/^---\n[\s\S]*?\n---\n/, '')
    .replace(/<!--[\s\S]*?-->/g, '')
  text = text.replace(/^( *)(```|~~~)[\s\S]*?^\1\2[^\n]*$/gm, '\n')
  const blocks = []
  let current = []
  const flush = () => {
    if (current.length) blocks.push(current.join(' '))
    current = []
  }
  let afterBlank = true,
    inList = false
  for (const line of text.split('\n')) {
    if (/^\s*$/.test(line)) {
      flush()
      afterBlank = true
      continue
    }
    const isItem = /^\s*([-*+]|\d+[.)])\s+/.test(line)
    if (/^(    |\t)/.test(line) && afterBlank && !isItem && !inList) {
      continue
    } // indented code
    if (/^\s*(#{1,6}\s|\||<|!\[|\[[^\]]+\]:|:::|={3,}|-{3,}$|\{%)/.test(line)) {
      flush()
      afterBlank = false
      continue
    }
    if (isItem) {
      flush()
      inList = true
      current.push(line.replace(/^\s*([-*+]|\d+[.)])\s+/, ''))
    } else {
      if (afterBlank && !/^\s/.test(line)) inList = false
      current.push(line.trim().replace(/^>\s?/, ''))
    }
    afterBlank = false
  }
  flush()
  return blocks
    .map((block) =>
      block
        .replace(/!\[[^\]]*\]\([^)]*\)/g, '')
        .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
        .replace(/\[([^\]]*)\]\[[^\]]*\]/g, '$1')
        .replace(/``[^`]*``|`[^`]*`/g, 'CODE')
        .replace(/<[^>]+>/g, '')
        .replace(/https?:\S+/g, 'CODE')
        .replace(/\\([^\w])/g, '$1')
        .replace(/[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}/g, '')
        .replace(/\s+/g, ' ')
        .trim(),
    )
    .filter((block) => (block.match(/[A-Za-z]{2,}/g) ?? []).length >= 4)
}

export const sentencesOf = (block) =>
  block
    .replace(/\b(e\.g|i\.e|etc|vs|cf|Dr|Mr|approx|incl|min|max|No)\./gi, '$1')
    .split(/(?<=[.!?…][)"'”’]?)\s+(?=["'“(]?[A-Z0-9`@/])/)
    .map((s) => s.trim())
    .filter((s) => /[A-Za-z]/.test(s))
export const wordsOf = (s) => s.match(/[A-Za-z0-9][\w'’./:@-]*/g) ?? []

const syllables = (word) => {
  const w = word.toLowerCase().replace(/[^a-z]/g, '')
  if (w.length <= 3) return 1
  return Math.max(
    1,
    (
      w
        .replace(/(?:[^laeiouy]es|ed|[^laeiouy]e)$/, '')
        .replace(/^y/, '')
        .match(/[aeiouy]{1,2}/g) ?? []
    ).length,
  )
}
const irregular =
  'been|begun|bought|brought|built|cut|done|drawn|driven|fed|felt|found|given|gone|got|grown|had|heard|held|hidden|hit|kept|known|laid|led|left|let|lost|made|meant|met|paid|put|read|run|said|seen|sent|set|shown|shut|sold|spent|spoken|stood|stolen|struck|taken|taught|thought|told|thrown|understood|won|written|bound|sealed'
const passive = new RegExp(
  `\\b(am|is|are|was|were|be|been|being)\\s+(?:(?:not|never|only|also|then|always|already|all|both|itself|so|thus|once|still)\\s+)*(\\w{2,}ed|${irregular})\\b`,
  'gi',
)
const nominal = /\b\w{3,}(?:tion|sion|ment|ance|ence|ness|ity|ism)s?\b/gi
// Relative clauses without a noun before them: `what waits`, `whoever asks`, `who has it`, `that of which`.
const headlessStart = /^(?:["“(]?)(?:What|Whoever|Whom|Whose|Who|Of|Where|Whatever|Beyond|Beside|To whom|From whom|By whom)\b(?![^.!]*\?$)/
const headless =
  /\b(?:whoever|whomever|whatever|of whom|of which|to whom|for whom|by whom|with whom|whom|(?<![a-z] )what (?:is|was|are|were|runs?|waits?|has|it|they|we|a|an|the|this|that|may|must|can|cannot|stands?|comes?|goes|stays?|others?|nobody|programs?)|(?<=(?:^|[,;:(]) ?|\bof |\bby |\bto |\bfrom |\band |\bor )(?:who|what) (?!is it|to\b|are you)[a-z]+)\b/gi
const archaic =
  /\b(?:thereof|therein|herein|hence|thence|whence|amongst|wherein|whereof|hereby|shall|nigh|lest|so too|, too|nobody|anew|beside|of ours|of its own|of one's own|of theirs|be told|is told|are told|was told|is said|are said|be said|stands? (?:behind|beside|in|for|before|there)|looks? after|as long as|but for|all the same|over there|as well as may|at the latest|at the earliest|so many|so much|such as (?:are|is)|is to be|are to be|has to be)\b/gi
const you = /\b(?:you|your|yours|you're|you'll|you've)\b/gi
const numbers = /(?<![\w.])\d[\d,.]*(?![\w.])/g

const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? 0
const count = (text, re) => (text.match(re) ?? []).length
export function measure(paths) {
  const blocks = paths.flatMap((path) => proseOf(textOf(path)))
  const sentences = blocks.flatMap(sentencesOf).filter((s) => wordsOf(s).length >= 3)
  const lengths = sentences.map((s) => wordsOf(s).length).sort((a, b) => a - b)
  const words = lengths.reduce((a, b) => a + b, 0)
  const plain = sentences.flatMap((s) => wordsOf(s).filter((w) => /^[A-Za-z'’-]+$/.test(w) && w !== 'CODE'))
  const syl = plain.reduce((a, w) => a + syllables(w), 0) / Math.max(1, plain.length)
  const text = sentences.join(' ')
  const mean = words / Math.max(1, sentences.length)
  const share = (n) => (100 * n) / Math.max(1, sentences.length),
    per1000 = (n) => (1000 * n) / Math.max(1, words)
  return {
    words,
    sentences: sentences.length,
    mean,
    median: quantile(lengths, 0.5),
    p90: quantile(lengths, 0.9),
    over25: share(lengths.filter((n) => n > 25).length),
    over30: share(lengths.filter((n) => n > 30).length),
    over40: share(lengths.filter((n) => n > 40).length),
    flesch: 206.835 - 1.015 * mean - 84.6 * syl,
    grade: 0.39 * mean + 11.8 * syl - 15.59,
    passive: share(sentences.filter((s) => s.match(passive)).length),
    nominal: per1000(count(text, nominal)),
    commas: count(text, /,/g) / Math.max(1, sentences.length),
    semicolon: share(sentences.filter((s) => /[;:](?=\s)/.test(s)).length),
    odd_start: share(sentences.filter((s) => headlessStart.test(s)).length),
    headless: per1000(count(text, headless)),
    archaic: per1000(count(text, archaic)),
    you: per1000(count(text, you)),
    nobody: per1000(count(text, /\b(?:nobody|nothing|none|whoever|neither)\b/gi)),
    three_numbers: share(sentences.filter((s) => count(s, numbers) >= 3).length),
    block: words / Math.max(1, blocks.length),
  }
}
const columns = [
  'words',
  'mean',
  'median',
  'p90',
  'over25',
  'over30',
  'over40',
  'flesch',
  'grade',
  'passive',
  'nominal',
  'commas',
  'semicolon',
  'odd_start',
  'headless',
  'archaic',
  'nobody',
  'you',
  'three_numbers',
  'block',
]
const show = (v) => (typeof v !== 'number' ? v : Number.isInteger(v) ? String(v) : v.toFixed(1))

if (process.argv[1]?.endsWith('prose.mjs')) {
  const args = process.argv.slice(2)
  const flag = (name, value) => {
    const i = args.indexOf(name)
    if (i < 0) return undefined
    return args.splice(i, value ? 2 : 1)[value ? 1 : 0]
  }
  tables = flag('--tables') !== undefined
  if (flag('--comments')) kind = SOURCES
  const retired = flag('--words', true)
  const each = flag('--each'),
    json = flag('--json'),
    above = flag('--sentences', true),
    check = flag('--check', true)
  if (above) {
    for (const path of args.flatMap(files))
      for (const s of proseOf(readFileSync(path, 'utf8')).flatMap(sentencesOf))
        if (wordsOf(s).length > Number(above)) console.log(`${path}: ${wordsOf(s).length}: ${s}`)
    process.exit(0)
  }
  if (retired) {
    const words = Object.entries(JSON.parse(readFileSync(retired, 'utf8'))).map(([word, use]) => [
      new RegExp(`\\b(?:${word})\\b`, 'gi'),
      use,
    ])
    let found = 0
    for (const path of args.flatMap(files))
      textOf(path)
        .replace(/```[\s\S]*?```|`[^`\n]*`/g, (code) => code.replace(/[^\n]/g, ' '))
        .split('\n')
        .forEach((line, i) => {
          for (const [re, use] of words)
            for (const [hit] of line.matchAll(re)) {
              found++
              console.log(`${path}:${i + 1}: "${hit}": ${use}`)
            }
        })
    console.log(`${found} retired words`)
    process.exit(found ? 1 : 0)
  }
  const limits = check ? JSON.parse(readFileSync(check, 'utf8')) : undefined
  const rows = (
    each || limits
      ? args.flatMap((a) => [...(limits && !kind.test(a) ? [[a, files(a)]] : []), ...files(a).map((f) => [f, [f]])])
      : args.map((a) => (a.includes('=') ? [a.split('=')[0], a.split('=')[1].split(',').flatMap(files)] : [a, files(a)]))
  ).map(([name, list]) => ({ name, ...measure(list) }))
  if (limits) {
    let failed = 0
    for (const row of rows)
      for (const [key, max] of Object.entries(limits)) {
        const min = key.endsWith('_min'),
          field = key.replace(/_min$/, '')
        if (row.words >= 300 && (min ? row[field] < max : row[field] > max)) {
          failed++
          console.log(`${row.name}: ${field} is ${show(row[field])}, ${min ? 'at least' : 'at most'} ${max}`)
        }
      }
    console.log(failed ? `${failed} limits exceeded in ${rows.length} files` : `${rows.length} files within the limits`)
    process.exit(failed ? 1 : 0)
  }
  if (json) console.log(JSON.stringify(rows, null, 1))
  else {
    console.log(['name', ...columns].join('\t'))
    for (const row of rows) console.log([row.name, ...columns.map((c) => show(row[c]))].join('\t'))
  }
}
