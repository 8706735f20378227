import { BoundedMap } from '../../base/bounded.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { Snapshot } from '../../executor-api/snapshot.ts'
import { ContactIndex } from '../../protocol/contact-index.ts'
import { MAX_FANOUTS } from '../../protocol/fanout-limits.ts'
import type { AgentId, RequestId } from '../../protocol/ids.ts'
import { any, count, optional, table, text, texts } from '../../protocol/json-table.ts'
import { groupsByName, selectHosts } from '../../protocol/select-hosts.ts'
import { parseBody } from '../json-body.ts'
import { COMMAND_FIELDS, type ProvenCommand, type RequestToSign, agentNamed, commandOf, differencesOf, refused } from './proven-request.ts'

/** How long after its proof a fan-out may still ask hosts whose turn comes late, where it has no earlier deadline of its own. */
export const PROVEN_FANOUT_MS = 24 * 60 * 60 * 1000

const { argv, stdin_b64, timeout_ms, clamp, cwd } = COMMAND_FIELDS
/** Fields of its object: those of `POST /exec/fanout`. */
const FANOUT_FIELDS = {
  hosts: texts,
  argv,
  stdin_b64,
  timeout_ms,
  clamp,
  cwd,
  fanout_id: optional(text),
  request_ids: optional(table),
  deadline_ms: optional(count),
  // These narrow when hosts are asked and say who is told; nothing of them is signed.
  parallel: optional(any()),
  canary: optional(any()),
  max_failures: optional(any()),
  session: optional(any()),
}

/** Whom words may mean. */
export interface KnownHosts extends Pick<Snapshot, 'contacts' | 'groups'> {
  readonly own: AgentId
}

interface ProvenFanout {
  readonly command: ProvenCommand
  /** Whom it names and who has not been asked yet. */
  readonly unasked: Set<AgentId>
  readonly requestIds: ReadonlyMap<string, unknown>
  /** Monotonic. */
  readonly until: number
}

/** Fan-outs that an operator proved: each covers one Request to each of its hosts, and no other. */
export class ProvenFanouts {
  readonly #clock: Clock
  /** The oldest first. One too many makes room: its hosts are then asked no more. */
  readonly #fanouts = new BoundedMap<RequestId, ProvenFanout>({ max: MAX_FANOUTS })

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  /** Throws `bad_request` for what is no object of a fan-out, `operator_proof_required` for the beginning of a stranger's id, `conflict`, and as `selectHosts`. */
  add(id: RequestId, proven: Uint8Array, known: KnownHosts): void {
    if (this.#fanouts.has(id)) throw new AppError('conflict', 'fanout_id: a fan-out with this id goes on')
    const fanout = parseBody(proven, FANOUT_FIELDS)
    if (fanout.fanout_id !== undefined && fanout.fanout_id !== id) throw refused('the operator proved another fan-out')
    const unasked = new Set(hostsOf(fanout.hosts, known))
    const lasts = Math.min(fanout.deadline_ms ?? PROVEN_FANOUT_MS, PROVEN_FANOUT_MS)
    this.#fanouts.set(id, {
      command: commandOf(fanout),
      unasked,
      requestIds: new Map(Object.entries(fanout.request_ids ?? {})),
      until: this.#clock.monotonic() + lasts,
    })
  }

  has(id: RequestId): boolean {
    return this.#fanouts.has(id)
  }

  over(id: RequestId): void {
    this.#fanouts.delete(id)
  }

  /** Spends the one Request to this host that the proof covers. Throws `operator_proof_required` where it covers none, or another. */
  spend(id: RequestId, toSign: RequestToSign): void {
    const fanout = this.#fanouts.get(id)!
    if (this.#clock.monotonic() > fanout.until) throw refused("the time of the operator's fan-out is over")
    if (!fanout.unasked.has(toSign.to_agent)) throw refused('the operator proved a fan-out without this host, or it was asked already')
    const chosen = fanout.requestIds.get(toSign.to_agent)
    const different = [
      ...differencesOf(fanout.command, toSign),
      ...(chosen === undefined || chosen === toSign.request_id ? [] : ['request_ids']),
    ]
    if (different.length > 0) throw refused(`the operator proved another fan-out: ${different.join(', ')} differ`)
    fanout.unasked.delete(toSign.to_agent)
  }
}

/** Whom its words mean, by what the executor itself knows. */
const hostsOf = (words: readonly string[], { own, contacts, groups }: KnownHosts): AgentId[] => {
  const known = {
    index: new ContactIndex(contacts),
    groups: groupsByName(groups),
    byPrefix: (text: string) => agentNamed(text, { own, contacts }),
  }
  return selectHosts(words, known).map(({ agent_id }) => agent_id)
}
