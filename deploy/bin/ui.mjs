#!/usr/bin/env node
// The page of `x0x ui`: finds the runtime that the package brought along and goes on under it.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-ui.mjs')
