#!/usr/bin/env node
// The tools of `x0x mcp`: finds the runtime that the package brought along and goes on under it.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-mcp.mjs')
