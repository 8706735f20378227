import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'

const MODULE = pathToFileURL(`${import.meta.dirname}/own-port.ts`).href

/** How many each asks for. */
const ASKED = 25
/** Asks, and keeps what it was given until it is terminated. */
const ASK = `
const { parentPort } = require('node:worker_threads')
parentPort.on('message', () => undefined)
import(${JSON.stringify(MODULE)}).then(async ({ ownPort }) => {
  const ports = []
  while (ports.length < ${ASKED}) ports.push(await ownPort())
  parentPort.postMessage(ports)
})
`

/** The first that Linux gives by itself. */
const GIVEN = 32_768

test('no two that ask in the same moment, and begin with the same port, are given one, nor one that the system gives away', async (t) => {
  // Each has the module for itself, with the number of one process.
  const workers = Array.from({ length: 8 }, () => new Worker(ASK, { eval: true }))
  t.after(() => Promise.all(workers.map((worker) => worker.terminate())))
  const told = await Promise.all(workers.map(async (worker) => once(worker, 'message') as Promise<[number[]]>))
  const ports = told.flatMap(([each]) => each)
  assert.equal(new Set(ports).size, workers.length * ASKED)
  assert.ok(ports.every((port) => port < GIVEN))
})
