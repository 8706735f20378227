import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'

import type { DaemonConfig } from '../../src/config/config.ts'
import { peerIdOf } from '../../src/identity/machine-key.ts'
import { beginEnrolment } from '../../src/supervision/enrolment.ts'
import { encodeEnrolToken } from '../../src/trust/enrolment-token.ts'
import { loadEnrolment, saveEnrolment } from '../../src/trust/pending-enrolment.ts'
import { newParty } from '../support/fake-network.ts'
import { tempDir } from '../support/temp-dir.ts'

test('a later start with the same token may change --append and --enrol-as until the host is enrolled', async (t) => {
  const path = join(await tempDir(t), 'enrolment.json')
  const { signer, machine } = newParty()
  const { machineId } = machine
  const enrol = encodeEnrolToken({
    agentId: signer.agentId,
    machineId,
    secret: new Uint8Array(20),
    expiresAtMs: 1,
    hasAcl: false,
    addresses: [`/ip4/127.0.0.1/tcp/1/p2p/${peerIdOf(machineId)}`],
  })
  const config = { paths: { enrolment: path }, acl_signers: [] } as unknown as DaemonConfig
  const begin = async (enrolAs: string | null, append: boolean) => {
    await beginEnrolment(config, { enrol, enrolAs, append }, {})
    const { name, append: isAppended } = (await loadEnrolment(path))!
    return [name, isAppended]
  }
  assert.deepEqual(await begin(null, false), [null, false])
  assert.deepEqual(await begin('web7', true), ['web7', true])
  assert.deepEqual(await begin(null, false), ['web7', true])
  await saveEnrolment(path, { ...(await loadEnrolment(path))!, state: 'done', token: null })
  assert.deepEqual(await begin('web8', true), ['web7', true])
})
