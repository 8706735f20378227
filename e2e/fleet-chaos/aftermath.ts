import assert from 'node:assert/strict'

import { FANOUT_ENDS, sumsOf, type FanoutHostJson, type FanoutLedgerJson } from '../../src/protocol/api/fanout.ts'
import type { RequestedHost } from '../../src/programs/x0x/fleet/ledger-state.ts'
import { readLedger } from '../../src/programs/x0x/fleet/ledger-file.ts'
import type { CliResult, JournalLineJson } from '../../test/support/mesh-of-daemons.ts'
import { MAY_BE_UNKNOWN } from './plan.ts'
import { journalOf, type FleetWorld } from './world.ts'

/** What `--json` prints. */
export type FanoutAnswer = FanoutLedgerJson & { readonly hosts: readonly FanoutHostJson[] }

export const answerOf = ({ stdout, stderr, status }: CliResult): FanoutAnswer => {
  try {
    return JSON.parse(stdout.toString()) as FanoutAnswer
  } catch (error) {
    throw new Error(`no answer (status ${status}): ${stderr}`, { cause: error })
  }
}

/** Each host that was asked ended once, and the sums are theirs. */
export const assertAddsUp = (answer: FanoutAnswer, asked: readonly string[], status: number, whole: FanoutLedgerJson = answer): void => {
  assert.deepEqual(answer.hosts.map(({ host }) => host).toSorted(), asked.toSorted())
  const sums = sumsOf(answer.fanout_id, answer.hosts)
  for (const key of [...FANOUT_ENDS, 'asked', 'failed', 'ok'] as const) assert.equal(answer[key], sums[key], key)
  assert.equal(
    FANOUT_ENDS.reduce((sum, end) => sum + answer[end], 0),
    asked.length,
  )
  const notRun = whole.denied + whole.unreachable + whole.not_started + whole.cancelled
  assert.equal(status, whole.unknown > 0 ? 4 : notRun > 0 ? 3 : whole.failed > 0 ? 1 : 0)
}

const factsOf = ({ host, agent_id, end, request_id, code, signal, denial_reason, error, incomplete }: FanoutHostJson): object => ({
  host,
  agent_id,
  end,
  request_id,
  code,
  signal,
  denial_reason,
  error,
  incomplete,
})

/** The file says of each host what the daemon said; answers what it says. */
export const assertLedgerSays = async (
  path: string,
  answer: FanoutAnswer,
): Promise<{ ends: FanoutHostJson[]; hosts: RequestedHost[]; ledger: FanoutLedgerJson }> => {
  const { state } = await readLedger(path)
  const ends = state.ends()
  for (const said of answer.hosts) assert.deepEqual(factsOf(ends.find(({ host }) => host === said.host)!), factsOf(said))
  return { ends, hosts: state.hosts, ledger: state.ledger() }
}

const only = (lines: readonly JournalLineJson[], name: string): JournalLineJson[] => lines.filter(({ event }) => event === name)

const assertExit = (said: FanoutHostJson, lines: readonly JournalLineJson[]): void => {
  const exits = only(lines, 'exit')
  assert.equal(only(lines, 'request').length, 1)
  assert.equal(exits.length, 1)
  assert.deepEqual([exits[0]!['code'], exits[0]!['signal']], [said.code, said.signal])
}

/** What the journal over there must say of the request of a host that ended so. */
const AGREES: Readonly<Record<FanoutHostJson['end'], (said: FanoutHostJson, lines: readonly JournalLineJson[]) => void>> = {
  ran: assertExit,
  denied: (said, lines) => {
    assert.deepEqual(
      only(lines, 'denial').map(({ reason }) => reason),
      [said.denial_reason],
    )
    assert.equal(only(lines, 'started').length, 0)
  },
  unreachable: (_said, lines) => assert.deepEqual(lines, []),
  not_started: (_said, lines) => assert.deepEqual(lines, []),
  cancelled: (said, lines) => {
    if (only(lines, 'started').length > 0 || said.code !== null || said.signal !== null) assertExit(said, lines)
  },
  unknown: (_said, lines) => assert.ok(only(lines, 'request').length <= 1),
}

/**
 * What is said of each host is what the journal of that host says, and no journal knows a request that nobody made. It is unknown only
 * where something was lost: where it was cut or killed, where all were `heldUp`, or of those that were `unheard` of before.
 */
export const assertJournalsAgree = async (
  { hosts }: FleetWorld,
  ends: readonly FanoutHostJson[],
  asked: readonly (readonly RequestedHost[])[],
  heldUp: boolean,
  unheard: ReadonlySet<string> = new Set(),
): Promise<void> => {
  for (const host of hosts) {
    const said = ends.find(({ host: name }) => host.name === name)!
    const ids = asked.flatMap((round) => round.filter(({ host: name }) => name === host.name).map(({ request_id }) => request_id))
    const journal = (await journalOf(host)).filter(({ request_id }) => typeof request_id === 'string')
    const lines = journal.filter(({ request_id }) => request_id === ids.at(-1))
    const told = `${host.name} (${host.fate}): ${JSON.stringify(said)}\n${lines.map((line) => JSON.stringify(line)).join('\n')}`
    try {
      if (said.request_id !== null) assert.equal(said.request_id, ids.at(-1))
      AGREES[said.end](said, lines)
      if (said.end === 'unknown') assert.ok(MAY_BE_UNKNOWN.has(host.fate) || heldUp || unheard.has(host.name), 'nothing was lost there')
    } catch (error) {
      throw new Error(`${told}\n${error instanceof Error ? error.message : String(error)}`, { cause: error })
    }
    const strange = journal.filter(({ request_id }) => !ids.includes(request_id))
    assert.deepEqual(strange, [], `${host.name} was asked what nobody asked`)
  }
}
