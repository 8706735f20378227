// Becomes dist/x0xd-network-start.mjs, which the network process reads from standard input. Runs dist/x0xd-network.mjs with the code that V8
// compiled when the package was built. The process may open no file, so the executor process passes both as open files.
import { cacheOf, functionIn, loadProgram } from './compiled-script.mjs'

const { closeSync, readFileSync } = process.getBuiltinModule('node:fs')

/** The same numbers are in network-supervisor.ts. */
const [PROGRAM_FD, CACHE_FD] = [5, 6]

const text = functionIn(readFileSync(PROGRAM_FD))
const cache = cacheOf(PROGRAM_FD, CACHE_FD)
for (const fd of [PROGRAM_FD, CACHE_FD]) closeSync(fd)
const main = loadProgram({ name: 'x0xd-network', text, cache, file: import.meta.filename, url: import.meta.url })
process.exitCode = await main(process.argv.slice(2), process.env)
