import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { chmod, copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { askingMcp, startDesk, type DeskProcess } from '../../test/support/approvals-place.ts'

// Programs that run other programs, whatever the source of the commands.

const HOUR = 3_600_000

const writeStore = async ({ paths }: DeskProcess, row: object): Promise<void> => {
  const store = JSON.parse(await readFile(paths.approvals, 'utf8')) as { agents: Record<string, object> }
  store.agents['reviewer'] = row
  await writeFile(paths.approvals, JSON.stringify(store))
}

/** Ways to run a program that is not allowed. Each would create the file `made` in the directory. */
const waysIn = async (root: string): Promise<[string, string[], string?][]> => {
  const made = join(root, 'made')
  await mkdir(join(root, 'd'))
  for (const name of ['evil', 'shebang', 'd/cpp', 'd/gpg']) {
    await writeFile(join(root, name), `#!/bin/sh\ntouch ${made}\n`)
    await chmod(join(root, name), 0o755)
  }
  await copyFile('/usr/bin/touch', join(root, 'copy'))
  await copyFile('/usr/bin/touch', join(root, 'ls'))
  for (const name of ['copy', 'ls']) await chmod(join(root, name), 0o755)
  await writeFile(join(root, 's.sh'), `touch ${made}\n`)
  await writeFile(join(root, 'Makefile'), `all:\n\ttouch ${made}\n`)
  await writeFile(join(root, 'x.c'), 'int x;\n')
  await writeFile(join(root, 'x.x'), 'program A { version B { int C(int) = 1; } = 1; } = 2;\n')
  const evil = join(root, 'evil')
  return [
    ['sh', ['s.sh']],
    ['sh', ['-c', `touch ${made}`]],
    ['sh', [], `touch ${made}\n`],
    [join(root, 'shebang'), []],
    [join(root, 'copy'), [made]],
    [join(root, 'ls'), [made]],
    ['make', []],
    ['perl', ['-e', `exec "touch","${made}"`]],
    ['find', ['.', '-maxdepth', '0', '-exec', evil, ';']],
    ['tar', ['cfI', '/dev/null', evil, 'x.c']],
    ['tar', ['-cf', '/dev/null', 'x.c', '--checkpoint=1', `--checkpoint-action=exec=${evil}`]],
    ['sort', [`--compress-program=${evil}`, '-S1', 'x.c']],
    ['split', [`--filter=${evil}`, 'x.c']],
    ['json_pp', ['-f', 'eval'], `system("touch", "${made}"); {}`],
    ['apt-cache', ['-o', `Dir::Bin::dpkg=${evil}`, 'policy']],
    ['apt-config', ['-o', `Dir::Bin::dpkg=${evil}`, 'dump']],
    ['curl', ['--engine', join(root, 'e.so'), 'http://127.0.0.1:1/']],
    ['gpgtar', ['--gpg', evil, '-e', '-r', 'a', 'x.c']],
    ['c99-gcc', ['-wrapper', evil, '-c', 'x.c']],
    ['rpcgen', ['-Y', join(root, 'd'), 'x.x']],
    ['fakeroot-sysv', ['touch', made]],
    ['nice', ['touch', made]],
  ]
}

for (const [what, row, modes, more] of [
  [
    'an allowlist of an earlier release',
    {
      security: 'allowlist',
      ask: 'off',
      allowlist: ['/usr/bin/*', '/**', '~/**', '/usr/bin/make', '/usr/bin/tar', '/usr/bin/s*', '/usr/bin/json_pp'].map((pattern) => ({
        pattern,
        lastUsedAt: 0,
        lastUsedCommand: '',
        lastResolvedPath: '',
      })),
    },
    { security: 'allowlist', ask: 'off' },
    '',
  ],
  [
    'an always-ask list, with all other commands allowed,',
    { security: 'full', ask: 'off', allowlist: [{ pattern: '/usr/bin/make', opaque: true }] },
    { security: 'full', ask: 'off' },
    '[[tools.exec.always_ask]]\nargv = ["touch", "<ANY...>"]\nreason = "it makes files"\n',
  ],
] as const)
  test(`${what} lets no program run another through a script, a Makefile, an option, stdin, a copy or a wrapper`, async (t) => {
    const desk = await startDesk(t)
    await writeStore(desk, row)
    const agent = await askingMcp(t, desk, { modes, more })
    const made = join(agent.root, 'made')
    for (const [command, args, stdin] of await waysIn(agent.root)) {
      const result = await agent.run(stdin === undefined ? 'exec_status' : 'exec_with_input', {
        command,
        args,
        cwd: agent.root,
        ...(stdin === undefined ? {} : { stdin }),
      })
      const words = `${command} ${args.join(' ')}`
      if (existsSync(join('/usr/bin', command)) || command.startsWith('/'))
        assert.match(String(result.denial_reason), /^approval_(denied|unavailable)$/, words)
      assert.ok(!existsSync(made), words)
      await rm(made, { force: true })
    }
    // A transparent program runs without approval if all other commands are allowed.
    assert.equal((await agent.run('exec_status', { command: 'ls', args: ['-l'] })).success, modes.security === 'full')
  })

test('with an always-ask list, a grant of an opaque command has a warning, covers one command and expires within a day', async (t) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', { security: 'full', ask: 'off' })
  const more = '[[tools.exec.always_ask]]\nargv = ["touch", "<ANY...>"]\nreason = "it makes files"\n'
  const agent = await askingMcp(t, desk, { modes: { security: 'full', ask: 'off' }, more })
  const human = await desk.human()
  await writeFile(join(agent.root, 'Makefile'), 'all:\n\t@true\n')
  const make = async (...args: string[]) => agent.run('exec_status', { command: 'make', args, cwd: agent.root })
  const running = make()
  const asked = await human.question()
  assert.match(asked.question.opaque ?? '', /^make may start other programs/)
  assert.ok(asked.decisions.includes('allow_always'))
  const { question_id, question } = asked
  const decision = { question_id, permit_sha256: question.permit_sha256, decision: 'allow_always' } as const
  await assert.rejects(human.desk.decide({ ...decision, expires_in_ms: 24 * HOUR + 1 }), { code: 'bad_request' })
  await human.desk.decide(decision)
  assert.equal((await running).success, true)
  const [grant] = await human.desk.grants()
  assert.equal((grant?.expires_at_ms ?? 0) - (grant?.created_at_ms ?? 0), 8 * HOUR)
  assert.equal((await make()).success, true)
  // Other arguments make another command, and a command of the always-ask list is asked about each time.
  const other = make('-s')
  await human.decide(await human.question(), 'deny')
  assert.equal((await other).success, false)
  const touching = agent.run('exec_status', { command: 'nice', args: ['touch', join(agent.root, 'made')], cwd: agent.root })
  const listed = await human.question()
  assert.deepEqual([listed.question.always_ask, listed.decisions.includes('allow_always')], ['it makes files', false])
  await human.decide(listed, 'deny')
  assert.equal((await touching).success, false)
  assert.ok(!existsSync(join(agent.root, 'made')))
})
