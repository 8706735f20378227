#!/usr/bin/env node
// The command line: one bundle on whatever Node (>= 20) runs this, started once.
'use strict'
const { existsSync } = require('node:fs')
const { join } = require('node:path')

const bundle = join(__dirname, '..', '..', 'dist', 'x0x.cjs')
/** Programs of their own, each under the runtime that it needs, in this very process where that is it. */
const PROGRAMS = { rexd: './rexd.mjs', mcp: './mcp.mjs', ui: './ui.mjs', desk: './desk.mjs', bundle: './bundle.mjs' }
/** Takes the lock of a data directory, which an older Node cannot. A remote command with these words only starts a little later. */
const rotatesKey = process.argv.some((word, at) => word === 'keys' && process.argv[at + 1] === 'rotate')
const program = Object.hasOwn(PROGRAMS, process.argv[2] ?? '') ? PROGRAMS[process.argv[2]] : undefined
if (program !== undefined) {
  process.argv.splice(2, 1)
  void import(program)
} else if (process.argv[2] === 'console') {
  const { rexecWords } = require('./console-words.cjs')
  // Its path as well: a unit that it writes names the program that knows these words.
  process.argv.splice(1, Infinity, join(__dirname, 'rexec.cjs'), ...rexecWords(process.argv.slice(3)))
  void import('./rexec.cjs')
} else if (rotatesKey) {
  void import('./start-bundle.mjs').then(({ startBundle }) => startBundle('x0x.cjs'))
} else if (existsSync(bundle)) {
  require(bundle)
} else {
  void import('./build-first.mjs').then(({ buildFirst }) => buildFirst(() => require(bundle)))
}
