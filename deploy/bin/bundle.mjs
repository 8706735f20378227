#!/usr/bin/env node
// Starts the program of `x0x bundle` with the runtime of the package.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-bundle.mjs')
