// Runs the three nodes of the compose file as processes in the files of an image. Then it runs the lines of docs/install.md that connect
// them.
import assert from 'node:assert/strict'
import { cpSync, readFileSync, appendFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'

import { parse } from 'yaml'

import { packageRoot } from '../runtime.mjs'
import { X0XD_READY } from './check-host.mjs'
import { Container, Network } from './container.mjs'
import { ran } from './place.mjs'

const FILE = join(packageRoot, 'deploy', 'compose', 'compose.yaml')
/** Keys whose value must be the same in every service. This check applies the FOLLOWED keys, and fails for any other key. */
const ALIKE = { image: 'x0x', restart: 'unless-stopped', read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] }
const FOLLOWED = ['build', 'init', 'tmpfs', 'hostname', 'environment', 'volumes']

const containerOf = async (name, service, { place, image, network, volumes }) => {
  for (const [key, value] of Object.entries(service))
    if (!FOLLOWED.includes(key)) assert.deepEqual(value, ALIKE[key], `${key} of ${name} in the compose file`)
  assert.equal(resolve(dirname(FILE), service.build.context), packageRoot)
  const mounts = service.volumes.map(async (text) => {
    const [from, to, mode] = text.split(':')
    // A new volume starts with the files of the image.
    if (from in volumes) await ran('cp', ['-a', join(image.root, to), join(place, from)])
    else assert.equal(mode, 'ro')
    return { from: join(place, from), to, isFixed: mode === 'ro' }
  })
  const { init, tmpfs, environment: env } = service
  return new Container(image, { name: service.hostname, network, init, tmpfs, env, mounts: await Promise.all(mounts) })
}

/** `place` is a directory for this check alone. */
export const checkCompose = async (place, image, daemons) => {
  const { services, volumes, ...others } = parse(readFileSync(FILE, 'utf8'), { merge: true })
  assert.deepEqual(Object.keys(others), ['name', 'x-node'])
  cpSync(dirname(FILE), place, { recursive: true })
  const network = new Network(place)
  try {
    await network.start(Object.keys(services))
    const containers = Object.entries(services).map(([name, service]) => containerOf(name, service, { place, image, network, volumes }))
    const [alice, bob, carol] = await Promise.all(containers)
    await Promise.all([alice, bob, carol].map((node) => node.start(daemons, X0XD_READY)))
    for (const node of [alice, bob, carol]) await node.health()
    assert.match(await alice.exec('rexd', '--version'), /^rexd /)
    for (const [name, node] of Object.entries({ bob, carol })) {
      await node.exec('x0x', 'contacts', 'import', (await alice.exec('x0x', 'card')).trim(), '--as', 'alice')
      await node.exec('x0x', 'contacts', 'trust', 'alice', 'trusted')
      await alice.exec('x0x', 'contacts', 'import', (await node.exec('x0x', 'card')).trim(), '--as', name)
      const asked = ['x0x', 'exec', name, '--', 'hostname']
      await assert.rejects(alice.exec(...asked), /not.*allow|denied/i)
      appendFileSync(join(place, `${name}.toml`), await node.exec('x0x', 'acl', 'suggest'))
      assert.equal(await node.stop(), 0, `${name} ends when it is asked to`)
      await node.start(daemons, X0XD_READY)
      assert.equal(await alice.exec(...asked), `${name}\n`)
    }
    await assert.rejects(bob.exec('touch', '/opt/x0x/file'), /Read-only file system/)
    for (const node of [alice, bob, carol]) await node.stop()
  } finally {
    await network.stop()
  }
}
