import { spawnSync } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { spawn } from '@lydell/node-pty'

import { COMPLETION_SCRIPTS } from '../../src/cli/completion.ts'
import { commandInPath } from '../support/command-in-path.ts'
import { fakeDaemon, json } from '../support/fake-daemon.ts'
import { until } from '../support/processes.ts'
import { tempDir } from '../support/temp-dir.ts'

/** The typed text before Tab, and the completed text. */
const TYPED = [
  ['@we', '@web'],
  ['role=d', 'role=db'],
  ['role=', 'role=db'],
  ['rol', 'role=db'],
  ['bob,@we', 'bob,@web'],
  ['bob,role=d', 'bob,role=db'],
  [`'!@we`, `'!@web'`],
  [String.raw`\!@we`, String.raw`\!@web`],
  ['"!role=d', '"!role=db"'],
  ['bo', 'bob'],
] as const

test('bash completes groups and labels at the start and after a comma, quoted or not, although it splits words there', async (t) => {
  if (spawnSync('bash', ['--version']).error !== undefined) return t.skip('bash is not installed')
  const contact = { name: 'bob', agent_id: 'cd'.repeat(32), trust: 'trusted', machines: [], labels: { role: 'db' } }
  const answer = { contacts: [contact], groups: [{ name: 'web', words: ['bob'] }], peers: [] }
  const { dir } = await fakeDaemon(t, (_request, response) => json(response, 200, answer))
  const rc = join(await tempDir(t), 'rc')
  await writeFile(rc, `PS1='$ '; set +o histexpand; bind 'set enable-bracketed-paste off'\n${COMPLETION_SCRIPTS.bash}`)
  const env = { ...(await commandInPath(t)), TERM: 'dumb', INPUTRC: '/dev/null' }
  const shell = spawn('bash', ['--noprofile', '--rcfile', rc, '-i'], { cols: 400, rows: 30, env })
  let shown = ''
  const ended = new Promise((resolve) => shell.onExit(resolve))
  t.after(async () => {
    shell.kill('SIGKILL')
    await ended
  })
  shell.onData((data) => (shown += data))
  await until(() => shown.endsWith('$ '))
  const complete = async (typed: string, completed: string): Promise<void> => {
    shown = ''
    shell.write(`x0x --data-dir ${dir} ${typed}\t`)
    await until(() => shown.endsWith(` ${completed} `))
    shown = ''
    // Moves to the start of the line and turns it into a comment.
    shell.write('\u0001# \r')
    await until(() => shown.endsWith('\n$ '))
  }
  for (const [typed, completed] of TYPED) await complete(`contacts select ${typed}`, `select ${completed}`)
  await complete('exec @we', 'exec @web')
  await complete('exec bob role=d', 'exec bob role=db')
})
