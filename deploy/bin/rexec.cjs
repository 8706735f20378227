#!/usr/bin/env node
// The console: its client is one bundle on whatever Node (>= 20) runs this; its host goes on under the runtime that it needs.
'use strict'
const { existsSync } = require('node:fs')
const { join } = require('node:path')

const words = process.argv.slice(2)
const dashes = words.indexOf('--')
const own = dashes === -1 ? words : words.slice(0, dashes)
const bundle = join(__dirname, '..', '..', 'dist', 'rexec.cjs')

const start = (program) => void import('./start-bundle.mjs').then(({ startBundle }) => startBundle(program))

if (own.includes('--start-host') || own.includes('-s')) {
  start('console.mjs')
} else if (own.includes('--mcp-stdio') || own.includes('-m')) {
  start('rexec-mcp.mjs')
} else if (existsSync(bundle)) {
  require(bundle)
} else {
  void import('./build-first.mjs').then(({ buildFirst }) => buildFirst(() => require(bundle)))
}
