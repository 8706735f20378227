import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmod, readdir, readFile, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { MeshOfDaemons } from '../support/mesh-of-daemons.ts'

const CONFIGURATION = join(import.meta.dirname, '..', '..', 'deploy', 'x0x.logrotate')
const PATH = `${process.env['PATH']}:/usr/sbin`
const hasLogrotate = spawnSync('logrotate', ['--version'], { env: { PATH } }).error === undefined

test(
  'logrotate renames the audit log and the request log of a running daemon, and their hash chains continue',
  { skip: hasLogrotate ? false : 'needs logrotate', timeout: 60_000 },
  async (t) => {
    const mesh = await MeshOfDaemons.create()
    t.after(async () => mesh.stop())
    const daemon = mesh.add('alice')
    await daemon.start()
    await daemon.writeAcl([{ agent: daemon, commands: [['true']] }])
    await daemon.restart()
    const rotate = async (): Promise<void> => {
      // Distributions may set this option for all logs.
      const text = `dateext\n${(await readFile(CONFIGURATION, 'utf8')).replaceAll('/var/lib/x0x', daemon.dir)}`
      const file = join(daemon.dir, 'logrotate.conf')
      await writeFile(file, text)
      await chmod(file, 0o600)
      const { status, stderr } = spawnSync('logrotate', ['--force', '--state', join(daemon.dir, 'logrotate.state'), file], {
        encoding: 'utf8',
        env: { PATH },
      })
      assert.deepEqual([status, stderr], [0, ''])
    }
    for (let turn = 0; turn < 2; turn++) {
      assert.equal((await daemon.exec(daemon.agentId, ['true'])).status, 0)
      await rotate()
    }
    assert.equal((await daemon.exec(daemon.agentId, ['true'])).status, 0)
    await daemon.stop()
    const files = await readdir(daemon.dir)
    for (const journal of ['exec.log', 'requests.jsonl']) {
      const parts = files.filter((name) => name.startsWith(journal)).toSorted()
      assert.deepEqual(parts, [journal, `${journal}.1`, `${journal}.2`])
      const paths = parts.map((name) => join(daemon.dir, name))
      for (const path of paths) assert.equal((await stat(path)).mode & 0o777, 0o600, path)
      const { status, stdout, stderr } = await daemon.cli(['audit', 'verify', ...paths.toReversed()])
      assert.equal(status, 0, `${String(stdout)}${stderr}`)
    }
  },
)
