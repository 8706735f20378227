#!/usr/bin/env node
// Starts the approval service of `x0x desk` with the runtime of the package.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-desk.mjs')
