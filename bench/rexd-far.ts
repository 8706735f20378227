import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'

import { connect } from '../src/sdk/client.ts'
import { webSocket } from '../src/sdk/web-socket.ts'
import { startRexd, type rexdPlace } from '../test/support/rexd-server.ts'
import { throughput } from './bulk.ts'
import { DelayProxy } from './delay-proxy.ts'
import type { OpenSsh } from './openssh.ts'
import type { Row } from './report.ts'
import type { Plan } from './stage.ts'

const MiB = 1024 * 1024
const ROUND_TRIP_MS = 30
const ROUNDS = { full: 5, quick: 2 }

/** Measures a file on a machine at a distance, read through the client library. */
export const farRow = async (t: Parameters<typeof rexdPlace>[0], sshd: OpenSsh, { bytes: most, mode }: Plan): Promise<Row> => {
  const bytes = most / 4
  let port = 0
  const roundTrip = (): number => ROUND_TRIP_MS
  const proxy = await new DelayProxy(() => port, roundTrip).listen()
  const sshProxy = await new DelayProxy(() => sshd.port, roundTrip).listen()
  const server = await startRexd(t, { server: `allowed_hosts = ["127.0.0.1:${proxy.port}"]` })
  ;({ port } = server)
  const path = join(server.root, 'large')
  await writeFile(path, Buffer.alloc(bytes, 'x'))
  const batch = join(server.dir, 'large.sftp')
  await writeFile(batch, `get ${path} /dev/null\n`)
  const ssh = await sshd.via(sshProxy.port)
  const client = await connect({ transport: webSocket({ url: `http://127.0.0.1:${proxy.port}`, token: server.token }) })
  try {
    const { files } = await client.open({ clientName: 'bench' })
    const read = async (): Promise<void> => {
      let length = 0
      for await (const chunk of files.read('large')) length += chunk.length
      if (length !== bytes) throw new Error(`${length} bytes were read of ${bytes}`)
    }
    const { ours, theirs } = await throughput(bytes, ROUNDS[mode], { ours: read, theirs: async () => ssh.sftp(batch) })
    const what = `\`files.read\` of \`x0x/client\`, ${bytes / MiB} MiB, WebSocket, ${ROUND_TRIP_MS} ms away`
    return { what, unit: 'MB/s', ours, theirs, peer: '`sftp`, to /dev/null' }
  } finally {
    await client.close()
    await ssh.closeMaster()
    await Promise.all([proxy, sshProxy].map(async (each) => each.close()))
  }
}
