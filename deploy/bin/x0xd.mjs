#!/usr/bin/env node
// Starts the daemon with the runtime of the package.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0xd.mjs')
