import { randomBytes } from 'node:crypto'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { CLI, type MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaintFiles } from '../test/support/proxied-pair.ts'
import { throughput } from './bulk.ts'
import { launch } from './launcher.ts'
import type { SshPath } from './openssh.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved } from './stats.ts'
import { delayed } from './wan.ts'

const MIB = 1024 * 1024
const SIZES = {
  full: { local: 1024, far: 64, files: 1_000, rounds: 3, hosts: 20 },
  quick: { local: 64, far: 16, files: 100, rounds: 1, hosts: 4 },
}
const FAR_MS = 100
const SMALL_BYTES = 4_096
/** File size for each of many hosts. */
const SHARED_MIB = 16

interface Copies {
  /** Name of the target. */
  readonly host: string
  readonly at: string
  readonly ssh: SshPath
  cp(...words: readonly string[]): Promise<void>
}

/** Rates of one large file in both directions. */
const large = async (
  { at, host, ssh, cp }: Copies,
  { here, there, mib, rounds, target }: { here: string; there: string; mib: number; rounds: number; target: string },
): Promise<Row[]> => {
  const bytes = mib * MIB
  await writeFile(join(here, 'large'), randomBytes(bytes))
  const [file, far] = [join(here, 'large'), join(there, 'large')]
  const rates = await throughput(bytes, rounds, {
    up: async () => cp(file, `${host}:${far}`),
    sshUp: async () => ssh.scp([file], join(there, 'scp')),
    down: async () => cp(`${host}:${far}`, join(here, 'back')),
    sshDown: async () => ssh.scpFrom(join(there, 'scp'), join(here, 'scp')),
  })
  return [
    { what: `${at}: ${mib} MiB to a host, \`x0x cp\``, unit: 'MB/s', ours: rates.up, theirs: rates.sshUp, peer: 'scp', target },
    { what: `${at}: ${mib} MiB from a host, \`x0x cp\``, unit: 'MB/s', ours: rates.down, theirs: rates.sshDown, peer: 'scp', target },
  ]
}

const small = async (
  { at, host, ssh, cp }: Copies,
  { here, there, count }: { here: string; there: string; count: number },
): Promise<Row> => {
  const tree = join(here, 'tree')
  await mkdir(tree)
  for (let index = 0; index < count; index++) await writeFile(join(tree, `file${index}`), randomBytes(SMALL_BYTES))
  const { ours, theirs } = await interleaved(1, {
    ours: async () => cp('-r', tree, `${host}:${there}/ours`),
    theirs: async () => ssh.scp(['-r', tree], join(there, 'theirs')),
  })
  return { what: `${at}: ${count} files of 4 KiB to a host, \`x0x cp -r\``, unit: 'ms', ours, theirs, peer: 'scp -r', target: '≤ 0.5' }
}

/** Starts a requester that reaches its target, named `target`, without a proxy. */
const startNear = async (mesh: MeshOfDaemons, keys: string): Promise<TestDaemon> => {
  const [requester, target] = [mesh.add('near'), mesh.add('target')]
  await Promise.all([requester.start(), target.start()])
  await target.writeAcl([{ agent: requester, commands: [], keys }])
  await target.restart()
  await requester.meet(target, 'known')
  await target.meet(requester, 'trusted')
  return requester
}

/** Measures one file copied to many hosts of this machine. All have the same path, so the last one keeps it. */
const toMany = async (
  mesh: MeshOfDaemons,
  { requester, ssh, cp }: { requester: TestDaemon } & Pick<Copies, 'ssh' | 'cp'>,
  { here, there, hosts, keys }: { here: string; there: string; hosts: number; keys: string },
): Promise<Row> => {
  const file = join(here, 'shared')
  await writeFile(file, randomBytes(SHARED_MIB * MIB))
  for (let at = 1; at <= hosts; at++) {
    const host = mesh.add(`host${at}`)
    await host.writeAcl([{ agent: requester, commands: [], keys }])
    await host.start()
    await requester.meet(host, 'known')
    await host.meet(requester, 'trusted')
  }
  const { ours, theirs } = await interleaved(3, {
    ours: async () => cp(file, `host[1-${hosts}]:${there}/`, '--parallel', String(hosts)),
    theirs: async () => void (await Promise.all(Array.from({ length: hosts }, async (_, at) => ssh.scp([file], join(there, `scp${at}`))))),
  })
  return { what: `here: ${SHARED_MIB} MiB to ${hosts} hosts, \`x0x cp\``, unit: 'ms', ours, theirs, peer: `${hosts} scp at once` }
}

/** Measures files to and from another agent, compared with scp and its default cipher. */
export const files = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const { mesh, openSsh, plan } = stage
  const { local, far, files: count, rounds, hosts } = SIZES[plan.mode]
  const sshd = await openSsh()
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  const [here, there] = [join(mesh.root, 'here'), join(mesh.root, 'there')]
  for (const directory of [here, there]) await mkdir(directory)
  let roundTripMs = 0
  const { proxy, sshProxy } = await delayed(stage, { bob, sshd, roundTripMs: () => roundTripMs })
  const keys = `[[exec.allow.files]]\nroot = "${there}"\nread = true\nwrite = true\ncreate_dirs = true\nmax_file_bytes = ${2 ** 32}\n`
  const cpOf =
    ({ dir }: TestDaemon) =>
    async (...words: readonly string[]): Promise<void> =>
      launch(process.execPath, [CLI, '--data-dir', dir, 'cp', ...words])
  const near = await startNear(mesh, keys)
  const rows = await large(
    { at: 'here', host: 'target', ssh: sshd.direct, cp: cpOf(near) },
    { here, there, mib: local, rounds, target: '≥ 0.4' },
  )
  rows.push(await toMany(mesh, { requester: near, ssh: sshd.direct, cp: cpOf(near) }, { here, there, hosts, keys }))
  await acquaintFiles({ mesh, alice, bob, proxy }, keys)
  roundTripMs = FAR_MS
  const copies = { at: `${FAR_MS} ms`, host: 'bob', ssh: await sshd.via(sshProxy.port), cp: cpOf(alice) }
  rows.push(...(await large(copies, { here, there, mib: far, rounds, target: '≥ 1.5' })), await small(copies, { here, there, count }))
  await rm(here, { recursive: true })
  return {
    intro:
      'Each copy is a new client process. scp makes a new connection with its default cipher. x0x compares the SHA-256 of each file at both ends and syncs it to the disk, scp does neither.',
    rows,
  }
}
