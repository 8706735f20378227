#!/usr/bin/env node
// Starts the MCP server of `x0x mcp` with the runtime of the package.
import { startBundle } from './start-bundle.mjs'

await startBundle('x0x-mcp.mjs')
