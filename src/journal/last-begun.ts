import { isMeshEvent } from './events.ts'
import { lastLines } from './last-lines.ts'
import { parseLine } from './parse-line.ts'
import type { RunKey } from './run-key.ts'

/** What a run of which there is nothing to warn leaves: its request, its start and its end. */
const LINES_OF_RUN = 3
/** Twice what those take, so that long commands hide few others. */
const BYTES_OF_RUN = 4 * 1024

const BEGINS = '"event":"request"'
/** Of a program that did not start, and of other denials. */
const STARTED = '"event":"started"'
const NOT_STARTED = '"reason":"spawn_failed"'

/**
 * The last runs of other agents that a journal says have begun, some `count` of them, the oldest first; of a larger journal its end alone
 * is read. A run whose program did not start has not begun. Throws `not_found` for one that cannot be read; one that is not there has none.
 */
export const lastBegun = async (path: string, count: number): Promise<RunKey[]> => {
  const { lines } = await lastLines(path, { lines: count * LINES_OF_RUN, maxBytes: count * BYTES_OF_RUN })
  const begun = new Map<string, RunKey>()
  const started = new Set<string>()
  for (const line of lines.filter((bytes) => [BEGINS, STARTED, NOT_STARTED].some((text) => bytes.includes(text))).map(parseLine)) {
    if (line === null || !('request_id' in line) || !('machine_id' in line) || !isMeshEvent(line)) continue
    const { request_id, agent_id, machine_id } = line
    const name = `${agent_id}:${machine_id}:${request_id}`
    if (line.event === 'request') begun.set(name, { request_id, agent_id, machine_id })
    else if (line.event === 'started') started.add(name)
    else if (line.event === 'denial' && line.reason === 'spawn_failed' && !started.has(name)) begun.delete(name)
  }
  return [...begun.values()].slice(-count)
}
