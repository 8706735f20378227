import assert from 'node:assert/strict'
import { chmod, readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { COPIES_DIRECTORY } from '../../src/process/private-copies.ts'
import { askingMcp, startDesk } from '../../test/support/approvals-place.ts'

// A requester exchanges a file of its root after an approver has allowed it, from a sandbox for which nobody is asked.

const ROUNDS = 10
const GOOD = 'echo GOOD\n'

/** Writes and renames other bytes to the file again and again, and the good ones between them. */
const WATCHER = `const fs = require('node:fs')
const [file, mode] = process.argv.slice(2)
const put = (text) => { fs.writeFileSync(file + '.new', text, { mode: 0o755 }); fs.renameSync(file + '.new', file) }
for (const end = Date.now() + 4000; Date.now() < end;) {
  const text = fs.readFileSync(file, 'utf8')
  mode === 'rename' ? put(text.replace('GOOD', 'EVIL')) : fs.writeFileSync(file, text.replace('GOOD', 'EVIL'))
}
`

const CASES = [
  ['a script on the host', 'gateway', (file: string) => ['sh', file], GOOD],
  ['a script on the host, behind a launcher', 'gateway', (file: string) => ['env', 'sh', file], GOOD],
  ['a program on the host, called by its path', 'gateway', (file: string) => [file], `#!/bin/sh\n${GOOD}`],
  ['a program in a sandbox', 'sandbox', (file: string) => [file], `#!/bin/sh\n${GOOD}`],
] as const

for (const [what, host, argvOf, text] of CASES)
  test(`${what} that is exchanged after its approval never runs: what runs is what was hashed`, async (t) => {
    const desk = await startDesk(t)
    await desk.modes('reviewer', { security: 'allowlist' })
    const agent = await askingMcp(t, desk, { more: 'allowed_hosts = ["sandbox", "gateway"]\n' })
    const human = await desk.human()
    const file = join(agent.root, 'deploy.sh')
    await writeFile(join(agent.root, 'watch.cjs'), WATCHER)
    for (let round = 0; round < ROUNDS; round += 1) {
      await writeFile(file, text)
      await chmod(file, 0o755)
      const [command = '', ...args] = argvOf(file)
      const call = { command, args, host, ask: 'always', answer_within_ms: 0 }
      const asked = await agent.run('exec_capture', call)
      const question = await human.question()
      assert.deepEqual(
        question.question.writable.map(({ path }) => path),
        [file],
      )
      assert.equal(question.question.script?.path, file)
      assert.ok(!question.decisions.includes('allow_always'))
      await human.decide(question, 'allow_once')
      // It begins at the answer, which is when policy looks again.
      const watcher = await agent.run('exec_capture', {
        command: process.execPath,
        args: [join(agent.root, 'watch.cjs'), file, round % 2 === 0 ? 'rename' : 'write'],
        host: 'sandbox',
        answer_within_ms: 0,
      })
      const ran = await agent.run('exec_wait', { run_id: asked.run_id, answer_within_ms: 30_000 })
      assert.ok(!(ran.stdout ?? '').includes('EVIL'), ran.stdout)
      await agent.run('exec_kill', { run_id: watcher.run_id })
    }
    const left = (await readdir(join(desk.paths.dir, COPIES_DIRECTORY), { recursive: true })).filter((name) => name.endsWith('deploy.sh'))
    assert.deepEqual(left, [])
  })
