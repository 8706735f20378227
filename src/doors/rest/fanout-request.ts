import { AppError } from '../../base/errors.ts'
import type { FanoutSpec } from '../../exec/fleet/fanouts.ts'
import type { FanoutHost } from '../../exec/fleet/host-end.ts'
import { pieceHashesInTurns } from '../../identity/hashes-in-turns.ts'
import { newRequestId } from '../../identity/request-id.ts'
import { DEFAULT_FANOUT_PARALLEL } from '../../protocol/fanout-limits.ts'
import { failuresAllowed } from '../../protocol/fanout.ts'
import { MAX_STDIN_SPOOL } from '../../protocol/limits.ts'
import type { RestComponents } from './components.ts'
import type { FanoutRequest } from './fanout-schemas.ts'
import { decodeBase64 } from './ndjson.ts'

const stdinOf = async ({ stdin_b64 }: FanoutRequest): Promise<FanoutSpec['command']['stdin']> => {
  if (stdin_b64 === undefined) return null
  const bytes = decodeBase64(stdin_b64, 'stdin_b64')
  if (bytes.length > MAX_STDIN_SPOOL) throw new AppError('too_large', `stdin of a fan-out has at most ${MAX_STDIN_SPOOL} bytes`)
  return { bytes, pieces: await pieceHashesInTurns(bytes) }
}

/** Throws `bad_request` where an id is given to nobody, or to two. */
const requestIdsOf = ({ request_ids = {} }: FanoutRequest, hosts: readonly FanoutHost[]): ReadonlyMap<string, string> => {
  const ids = new Map(Object.entries(request_ids))
  const asked = new Set(hosts.map(({ agent_id }) => agent_id))
  const foreign = [...ids.keys()].find((agent) => !asked.has(agent))
  if (foreign !== undefined) throw new AppError('bad_request', `request_ids: ${foreign} is not among the hosts`)
  if (new Set(ids.values()).size < ids.size) throw new AppError('bad_request', 'request_ids: each run needs an id of its own')
  return ids
}

/** What the body asks for. Throws `bad_request`, `too_large`, and as `selectHosts`. */
export const toFanoutSpec = async (
  body: FanoutRequest,
  { directory }: Pick<RestComponents, 'directory'>,
  more: Pick<FanoutSpec, 'proof'> & Pick<FanoutSpec['command'], 'trace'>,
): Promise<FanoutSpec> => {
  const hosts = directory.select(body.hosts).map(({ host, agent_id }): FanoutHost => ({ host, agent_id }))
  const { trace, proof } = more
  return {
    fanout_id: body.fanout_id ?? newRequestId(),
    hosts,
    parallel: body.parallel ?? DEFAULT_FANOUT_PARALLEL,
    canary: body.canary ?? 0,
    maxFailures: body.max_failures === undefined ? null : failuresAllowed(body.max_failures, hosts.length),
    deadlineMs: body.deadline_ms ?? null,
    proof,
    command: {
      argv: body.argv,
      stdin: await stdinOf(body),
      timeout_ms: body.timeout_ms ?? null,
      cwd: body.cwd ?? null,
      clamp: body.clamp ?? false,
      requestIds: requestIdsOf(body, hosts),
      ...(body.session !== undefined && { session: body.session }),
      ...(trace !== undefined && { trace }),
    },
  }
}
