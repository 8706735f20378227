import assert from 'node:assert/strict'
import { createSocket, type Socket } from 'node:dgram'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { Worker } from 'node:worker_threads'

import { hasProc } from './processes.ts'
import { ownPort } from './own-port.ts'

const MODULE = pathToFileURL(`${import.meta.dirname}/own-port.ts`).href

/** Number of ports that each worker requests. */
const ASKED = 25
/** Requests ports, and holds them until the worker is terminated. */
const ASK = `
const { parentPort } = require('node:worker_threads')
parentPort.on('message', () => undefined)
import(${JSON.stringify(MODULE)}).then(async ({ ownPort }) => {
  const ports = []
  while (ports.length < ${ASKED}) ports.push(await ownPort())
  parentPort.postMessage(ports)
})
`

/** The first port that Linux assigns automatically. */
const GIVEN = 32_768

test('concurrent requests that begin with the same port get different ports, outside the range that Linux assigns', async (t) => {
  // Each worker loads the module itself, with the same PID.
  const workers = Array.from({ length: 8 }, () => new Worker(ASK, { eval: true }))
  t.after(() => Promise.all(workers.map((worker) => worker.terminate())))
  const told = await Promise.all(workers.map(async (worker) => once(worker, 'message') as Promise<[number[]]>))
  const ports = told.flatMap(([each]) => each)
  assert.equal(new Set(ports).size, workers.length * ASKED)
  assert.ok(ports.every((port) => port < GIVEN))
})

test('a request that skips ports in use keeps no descriptor for them', { skip: !hasProc }, async (t) => {
  const open = async (): Promise<number> => (await readdir('/proc/self/fd')).length
  const first = await ownPort()
  const others: Socket[] = []
  for (let port = first + 1; port <= first + 50; port++) {
    const socket = createSocket('udp4').bind(port, '127.0.0.1')
    others.push(socket)
    await once(socket, 'listening').catch(() => undefined)
  }
  t.after(() => others.forEach((socket) => socket.close()))
  const before = await open()
  await ownPort()
  assert.ok((await open()) < before + 25)
})
