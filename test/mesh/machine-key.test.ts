import assert from 'node:assert/strict'
import { test } from 'node:test'
import { generateKeyPairFromSeed } from '@libp2p/crypto/keys'

import { randomBytes } from '../../src/identity/hash.ts'
import { libp2pOptions } from '../../src/mesh/libp2p/options.ts'

test('the private key for libp2p equals the one that libp2p derives from the same seed', async () => {
  for (const seed of [randomBytes(32), new Uint8Array(32)]) {
    const { privateKey } = await libp2pOptions({ seed, listen: [], announce: [], mdns: false, gater: {} })
    assert.ok(privateKey)
    const expected = await generateKeyPairFromSeed('Ed25519', seed)
    assert.ok(privateKey.equals(expected))
    assert.ok(privateKey.publicKey.equals(expected.publicKey))
    const data = Buffer.from('signed')
    assert.ok(await expected.publicKey.verify(data, await privateKey.sign(data)))
  }
})
