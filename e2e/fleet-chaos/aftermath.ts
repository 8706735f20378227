import assert from 'node:assert/strict'

import { FANOUT_ENDS, sumsOf, type FanoutHostJson, type FanoutLedgerJson } from '../../src/protocol/api/fanout.ts'
import type { RequestedHost } from '../../src/programs/x0x/fleet/ledger-state.ts'
import { readLedger } from '../../src/programs/x0x/fleet/ledger-file.ts'
import type { CliResult, JournalLineJson } from '../../test/support/mesh-of-daemons.ts'
import { MAY_BE_UNKNOWN } from './plan.ts'
import { journalOf, type FleetWorld } from './world.ts'

/** Output of `x0x exec --json` for several hosts. */
export type FanoutAnswer = FanoutLedgerJson & { readonly hosts: readonly FanoutHostJson[] }

export const answerOf = ({ stdout, stderr, status }: CliResult): FanoutAnswer => {
  try {
    return JSON.parse(stdout.toString()) as FanoutAnswer
  } catch (error) {
    throw new Error(`no answer (status ${status}): ${stderr}`, { cause: error })
  }
}

/** Checks that each requested host ended exactly once, and that the counts and the exit status match these ends. */
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

/** Checks that the ledger and the daemon agree about each host. Returns the contents of the ledger. */
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

/** Checks what the audit log of the host must say about its request, for each kind of end. */
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
 * Checks that the end of each host agrees with its audit log, and that no audit log has a request that was not made. An end may be unknown
 * only on a host that was cut or killed, if all daemons were `heldUp`, or on a host that was `unheard` before.
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
