import type { CliContext } from '../context.ts'
import { printJson, printLine, printTable } from '../print.ts'

interface Peer {
  readonly [key: string]: unknown
}

const cell = (value: unknown): string => {
  if (value === null || value === undefined) return '-'
  if (Array.isArray(value)) return value.map(String).join(' ')
  return typeof value === 'object' ? JSON.stringify(value) : String(value as string | number | boolean)
}

/** `x0x peers`: who is connected and who was discovered. */
export const runPeers = async (context: CliContext): Promise<number> => {
  const answer = await context.api.json<{ peers: readonly Peer[] }>({ method: 'GET', path: '/peers' })
  if (context.json) await printJson(context, answer)
  else if (answer.peers.length === 0)
    await printLine(context, 'no peers; import a card (x0x contacts import LINK) or give the daemon --bootstrap')
  else {
    const columns = [...new Set(answer.peers.flatMap((peer) => Object.keys(peer)))]
    const rows = answer.peers.map((peer) => columns.map((column) => cell(peer[column])))
    await printTable(
      context,
      columns.map((column) => column.replaceAll('_', ' ').toUpperCase()),
      rows,
    )
  }
  return 0
}
