#!/usr/bin/env node
// REXD: finds the runtime that the package brought along and goes on under it.
import { startBundle } from './start-bundle.mjs'

await startBundle('rexd.mjs')
