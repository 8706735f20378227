import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

/** Both ends of a unix socket. The kernel buffers its data, as between the two processes of a daemon. */
export const socketPair = async (t: TestContext): Promise<[ours: Socket, theirs: Socket]> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-test-'))
  const server = createServer()
  server.listen(join(dir, 'pair.sock'))
  await once(server, 'listening')
  const theirs = connect(join(dir, 'pair.sock'))
  const [[ours]] = await Promise.all([once(server, 'connection') as Promise<[Socket]>, once(theirs, 'connect')])
  server.close()
  t.after(async () => {
    ours.destroy()
    theirs.destroy()
    await rm(dir, { recursive: true, force: true })
  })
  return [ours, theirs]
}
