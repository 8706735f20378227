#!/usr/bin/env node
// Starts REXD with the runtime of the package.
import { startBundle } from './start-bundle.mjs'

await startBundle('rexd.mjs')
