import assert from 'node:assert/strict'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { MeshOfDaemons, processesNaming, until, type TestDaemon } from './mesh-of-daemons.ts'
import { ask, post, type Reached } from './rexd-callers.ts'
import { pidIn, rexdPlace, type RexdPlace, type RexdSettings } from './rexd-server.ts'

/** A daemon that serves REXD. The test ends it and checks that no process of it remains. */
export interface RexdBeside extends RexdPlace {
  readonly mesh: MeshOfDaemons
  readonly daemon: TestDaemon
  /** The address of REXD from the daemon's output, and its token. */
  reached(): Promise<Reached>
  /** The PID of REXD, as the daemon recorded it. */
  pid(): Promise<number>
  /** Waits for a REXD with another PID that answers. */
  another(than: number): Promise<number>
}

/** Creates the daemon without starting it. By default it uses a unix socket, so that each start has the same address. */
export const rexdBeside = async (t: TestContext, settings: RexdSettings = {}): Promise<RexdBeside> => {
  const mesh = await MeshOfDaemons.create()
  const place = await rexdPlace(t, { listen: `unix:${join(mesh.root, 'sock', 'rexd.sock')}`, ...settings })
  const daemon = mesh.add('alice')
  place.ending.push(async () => {
    await mesh.stop()
    assert.deepEqual(await processesNaming(place.dir), [], 'nothing of rexd is left')
  })
  await mkdir(daemon.dir, { mode: 0o700 })
  await writeFile(join(daemon.dir, 'config.toml'), `rexd_config = ${JSON.stringify(place.config)}\n`, { mode: 0o600 })
  const pid = async (): Promise<number> => Number((await readFile(join(daemon.dir, 'rexd.pid'), 'utf8')).split(' ')[0])
  const reached = async (): Promise<Reached> => ({
    url: /, rexd ((?:https?|unix):[^,]+), data /.exec(daemon.ready)?.[1] ?? '',
    token: (await readFile(place.tokenFile, 'latin1')).trim(),
  })
  const another = async (than: number): Promise<number> =>
    until('another rexd answers', async () => {
      const now = await pid().catch(() => than)
      return now !== than && (await answers(await reached())) && now
    })
  return { ...place, mesh, daemon, reached, pid, another }
}

/** False if the address has no listener. */
export const answers = async (server: Reached): Promise<boolean> =>
  ask(server, { token: null }).then(
    ({ status }) => status === 401,
    () => false,
  )

/** Starts a shell, a child of it, and a child that has left its process group, in the session `name`. Returns their PIDs. */
export const startPrograms = async ({ root }: RexdPlace, server: Reached, name = 'a'): Promise<number[]> => {
  const { session_id } = await post(server, 'session.open', { client_name: name })
  const files = ['shell', 'child', 'apart'].map((one) => `${name}-${one}`)
  const [shell, child, apart] = files
  const command = `echo $$ > ${shell}; sleep 1000 & echo $! > ${child}; setsid sh -c 'echo $$ > ${apart}; exec sleep 1000' & wait`
  await post(server, 'exec.start', { session_id, shell: true, command })
  return Promise.all(files.map(async (file) => pidIn(join(root, file))))
}
