// The functions of a bundle that its program runs when it starts and does common work, as lists in deploy/profiles. A list is made by
// `npm run profile` and is part of the sources, so that a build compiles the same functions each time.
import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { Session } from 'node:inspector'
import { join } from 'node:path'

import { parseSync } from 'oxc-parser'

import { scriptOf } from './compiled-script.mjs'
import { packageRoot } from './runtime.mjs'

/** Programs with compiled code. */
export const PROFILED = ['rexd', 'x0xd', 'x0xd-network']

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression'])
/** Characters that tell the functions of a bundle apart. Two functions with one hash would both be compiled. */
const HASH = 8

const hashOf = (text) => createHash('sha256').update(text).digest('base64url').slice(0, HASH)

/** Where the bodies of all functions begin and end, outer functions first. */
const functionsIn = (text) => {
  const found = []
  const visit = (node) => {
    if (FUNCTIONS.has(node.type) && node.body) found.push({ start: node.body.start, end: node.end })
    for (const part of Object.values(node).flat()) if (typeof part === 'object' && part !== null) visit(part)
  }
  const { program, errors } = parseSync('bundle.cjs', text)
  if (errors.length > 0) throw new Error(`the bundle cannot be parsed: ${errors[0].message}`)
  visit(program)
  return found
}

const listOf = (name) => join(packageRoot, 'deploy', 'profiles', `${name}.txt`)

/** Line and column of each function of the list, for V8. A function that has changed since is not found. */
export const placesOf = (name) => {
  const text = scriptOf(name).bytes.toString()
  const hashes = new Set(readFileSync(listOf(name), 'utf8').split('\n'))
  const listed = functionsIn(text).filter(({ start, end }) => hashes.has(hashOf(text.slice(start, end))))
  const lineStarts = [0]
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) lineStarts.push(at + 1)
  // A function around another one of the list is compiled with that.
  const isAround = (outer, inner) => inner !== undefined && inner.start < outer.end
  const innermost = listed.filter((one, at) => !isAround(one, listed[at + 1]))
  return innermost.map(({ start }) => {
    const line = lineStarts.findLastIndex((begin) => begin <= start)
    return [line, start - lineStarts[line]]
  })
}

/** Begins to note which functions of a program run. Returns a function that ends it and writes the list into a directory. */
export const profileFunctions = async (name, directory) => {
  const session = new Session()
  session.connect()
  const post = (method, parameters) =>
    new Promise((resolve, reject) => session.post(method, parameters, (error, answer) => (error ? reject(error) : resolve(answer))))
  await post('Profiler.enable')
  await post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  const { file, bytes } = scriptOf(name)
  return () => {
    let coverage = []
    session.post('Profiler.takePreciseCoverage', (_error, answer) => (coverage = answer.result))
    const text = bytes.toString()
    const byEnd = Map.groupBy(functionsIn(text), ({ end }) => end)
    const ran = coverage
      .filter(({ url }) => url.endsWith(file))
      .flatMap(({ functions }) => functions)
      .flatMap(({ ranges: [{ startOffset, endOffset, count }] }) => {
        // Of functions with one end, the one whose head begins there is the outermost with a later body.
        const within = (byEnd.get(endOffset) ?? []).filter(({ start }) => start > startOffset)
        return count === 0 || within.length === 0 ? [] : [within.reduce((a, b) => (b.start < a.start ? b : a))]
      })
    const hashes = new Set(ran.map(({ start, end }) => hashOf(text.slice(start, end))))
    writeFileSync(join(directory, `${name}.txt`), `${[...hashes].toSorted().join('\n')}\n`)
  }
}
