#!/usr/bin/env node
// The command line: one bundle on whatever Node (>= 20) runs this, started once.
'use strict'
const { existsSync } = require('node:fs')
const { join } = require('node:path')

const bundle = join(__dirname, '..', '..', 'dist', 'x0x.cjs')
if (process.argv[2] === 'rexd') {
  // A program of its own, under the runtime that it needs.
  process.argv.splice(2, 1)
  void import('./rexd.mjs')
} else if (existsSync(bundle)) {
  require(bundle)
} else {
  void import('./build-first.mjs').then(({ buildFirst }) => buildFirst(() => require(bundle)))
}
