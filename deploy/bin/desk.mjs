#!/usr/bin/env node
// The desk of `x0x desk`: finds the runtime that the package brought along and goes on under it.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-desk.mjs')
