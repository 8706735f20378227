import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

import type { AroundInit } from './announce-around.ts'
import type { NodeCost, NodeInit } from './announce-node.ts'
import { tableOf, type Section } from './report.ts'
import type { Stage } from './stage.ts'

const STEPS = {
  full: { nodes: [10, 100, 1_000], settleMs: 25_000, measureMs: 30_000 },
  quick: { nodes: [10, 100], settleMs: 10_000, measureMs: 10_000 },
}
/** Number of real nodes around the measured one. Gossip forwards a message to six peers, which two cores can handle. */
const NEIGHBOURS = 6

const start = async (program: string, init: AroundInit | NodeInit) => {
  const path = fileURLToPath(new URL(program, import.meta.url))
  const child = spawn(process.execPath, [path, JSON.stringify(init)], { stdio: ['pipe', 'pipe', 'inherit'] })
  const exited = once(child, 'exit')
  let text = ''
  for await (const part of child.stdout) {
    text += String(part)
    if (text.endsWith('\n')) break
  }
  const stop = async (): Promise<void> => {
    child.stdin.end()
    await exited
  }
  return { said: JSON.parse(text) as unknown, stop }
}

/** Measures what discovery costs one node in meshes of different sizes. */
export const announce = async ({ plan }: Stage): Promise<Omit<Section, 'title'>> => {
  const { nodes, settleMs, measureMs } = STEPS[plan.mode]
  const lines: string[][] = []
  for (const count of nodes) {
    const neighbours = Math.min(NEIGHBOURS, count - 1)
    const around = await start('announce-around.ts', { neighbours, beyond: count - 1 - neighbours })
    const node = await start('announce-node.ts', { bootstrap: around.said as string[], settleMs, measureMs })
    const cost = node.said as NodeCost
    await Promise.all([node.stop(), around.stop()])
    lines.push([
      String(count),
      (cost.bytesIn / 1000).toFixed(2),
      (cost.bytesOut / 1000).toFixed(2),
      cost.cpuMs.toFixed(1),
      cost.messages.toFixed(2),
      String(cost.heard),
      String(cost.known),
    ])
  }
  return {
    intro: `One node alone in a process, with ${NEIGHBOURS} neighbours in another: all of them real, with TCP, Noise, yamux and gossipsub. The neighbours relay the messages of all other nodes, with real keys and signatures, at the real rate. No node knows another one. ${measureMs / 1000} s, after ${settleMs / 1000} s.`,
    table: tableOf(['nodes', 'kB/s in', 'kB/s out', 'ms CPU/s', 'presences/s', 'machines known', 'agents with a card'], lines),
  }
}
