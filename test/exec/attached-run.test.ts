import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'

import { AttachedRun } from '../../src/exec/detached/attached-run.ts'
import { sha256 } from '../../src/identity/hash.ts'
import { EXEC_EXIT_DOMAIN, execExit } from '../../src/protocol/wire/exec.ts'
import { toHex } from '../../src/protocol/ids.ts'
import type { WarningKind } from '../../src/protocol/reasons.ts'
import { DetachedMemory } from '../support/detached.ts'
import { newParty } from '../support/fake-network.ts'

const [HOST, OWN] = [newParty(), newParty()]
const PEER = { number: 1, agentId: HOST.signer.agentId, machineId: HOST.machine.machineId, agentPublicKey: HOST.signer.publicKey }
const OURS = { agentId: OWN.signer.agentId, machineId: OWN.machine.machineId }
const OUTPUT = Buffer.from('0123456789')

/** Outcome of an attach from this byte on. The host sends the output up to byte 6, these warnings, and a truncated Exit of 10 bytes. */
const outcomeFrom = async (from: number, warnings: readonly WarningKind[], truncated = true) => {
  const request_id = randomUUID()
  const request_sha256 = sha256(Buffer.from('the request'))
  const target = { agent_id: PEER.agentId, machine_id: PEER.machineId, request_id, request_sha256: [toHex(request_sha256)] }
  const run = new AttachedRun({ sink: new DetachedMemory() }, { target, from })
  const kept = { kept: 6, dropped: 4, keep_bytes: 6, lifetime_left_ms: null, kept_for_ms: 1, stdout_before: from, stderr_before: 0 }
  run.take({ type: 'detached', request_id, state: 'ended', request_sha256, ...kept }, PEER)
  run.take({ type: 'stdout', request_id, seq: 0, data: OUTPUT.subarray(from, 6) }, PEER)
  for (const kind of warnings) run.take({ type: 'warning', request_id, kind, limit: null, timeout_ms: null } as never, PEER)
  const body = execExit.encode({
    version: 1,
    request_id,
    request_sha256,
    from_agent: PEER.agentId,
    from_machine: PEER.machineId,
    to_agent: OURS.agentId,
    to_machine: OURS.machineId,
    code: 0,
    signal: null,
    duration_ms: 1,
    stdout_bytes_total: OUTPUT.length,
    stderr_bytes_total: 0,
    stdout_sha256: sha256(OUTPUT.subarray(0, 6)),
    stderr_sha256: sha256(new Uint8Array()),
    truncated,
    denial_reason: null,
  })
  return run.outcomeOf({ body, signature: await HOST.signer.sign(EXEC_EXIT_DOMAIN, body) }, PEER, OURS)
}

test('an Exit with missing output is incomplete unless a limit warning explains it, from any byte offset', async () => {
  for (const from of [0, 1, 5, 6]) {
    assert.equal((await outcomeFrom(from, [])).incomplete, true, `from ${from}`)
    assert.equal((await outcomeFrom(from, ['output_lost', 'stdout_cap_hit'])).incomplete, true, `lost, from ${from}`)
    assert.equal((await outcomeFrom(from, ['stdout_cap_hit'], false)).incomplete, true, `not cut, from ${from}`)
    assert.equal((await outcomeFrom(from, ['stdout_cap_hit'])).incomplete, false, `cut, from ${from}`)
  }
})
