#!/usr/bin/env node
// The program of `x0x bundle`: finds the runtime that the package brought along and goes on under it.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-bundle.mjs')
