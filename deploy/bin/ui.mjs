#!/usr/bin/env node
// Starts the page server of `x0x ui` with the runtime of the package.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-ui.mjs')
