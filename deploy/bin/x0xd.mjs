#!/usr/bin/env node
// The daemon: finds the runtime that the package brought along and goes on under it.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0xd.mjs')
