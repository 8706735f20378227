import { isMeshEvent } from './events.ts'
import { lastLines } from './last-lines.ts'
import { parseLine } from './parse-line.ts'
import type { RunKey } from './run-key.ts'

/** What a run of which there is nothing to warn leaves: its request, its start and its end. */
const LINES_OF_RUN = 3
/** Twice what those take, so that long commands hide few others. */
const BYTES_OF_RUN = 4 * 1024

const BEGINS = '"event":"request"'

/**
 * The last runs of other agents that a journal says have begun, some `count` of them, the oldest first; of a larger journal its end alone
 * is read. Throws `not_found` for one that cannot be read; one that is not there has none.
 */
export const lastBegun = async (path: string, count: number): Promise<RunKey[]> => {
  const { lines } = await lastLines(path, { lines: count * LINES_OF_RUN, maxBytes: count * BYTES_OF_RUN })
  const begun = lines.filter((bytes) => bytes.includes(BEGINS)).map(parseLine)
  return begun
    .flatMap((line) => (line?.event === 'request' && isMeshEvent(line) ? [line] : []))
    .map(({ request_id, agent_id, machine_id }) => ({ request_id, agent_id, machine_id }))
    .slice(-count)
}
