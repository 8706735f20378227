import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { findExecutable } from '../../src/policy/executable.ts'
import { terminalProblem } from '../../src/process/terminal.ts'
import { ConsolePlace } from '../../test/support/console-place.ts'

// Programs that would wait for keys, on a terminal without a person.

const hasGit = findExecutable('git').kind === 'found'
const OPTIONS = { timeout: 60_000, skip: terminalProblem() ?? (hasGit ? false : 'needs git') }
const COMMITS = 60
/** Pagers and editors that a person uses, and that wait forever. */
const OF_A_PERSON = Object.fromEntries(
  ['PAGER', 'GIT_PAGER', 'MANPAGER', 'EDITOR', 'VISUAL', 'GIT_EDITOR', 'GIT_SEQUENCE_EDITOR'].map((name) => [name, 'sleep 1000; :']),
)

const place = async (t: TestContext): Promise<ConsolePlace> => {
  const made = await ConsolePlace.make(t)
  await mkdir(join(made.dir, 'repository'))
  const git = (...words: string[]): unknown =>
    execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@b', ...words], { cwd: made.dir, env: made.env, stdio: 'pipe' })
  git('init', '-q')
  git('config', 'user.name', 'a')
  git('config', 'user.email', 'a@b')
  for (let count = 0; count < COMMITS; count++) git('commit', '-q', '--allow-empty', '-m', `commit ${count}`)
  await made.host(['--start-host', '--plain'], { env: OF_A_PERSON })
  return made
}

test('a pager prints everything at once, and a pager that the client sets is used', OPTIONS, async (t) => {
  const console = await place(t)
  const { status, stdout } = await console.run(['git', 'log', '--oneline'])
  assert.deepEqual([status, stdout.trim().split('\n').length], [0, COMMITS])
  for (const name of ['GIT_PAGER', 'PAGER'])
    assert.equal((await console.run(['git', 'log', '--oneline'], ['-e', `${name}=wc -l`])).stdout.trim(), String(COMMITS), name)
})

test('an editor fails at once and says what to do, and an editor that the client sets is used', OPTIONS, async (t) => {
  const console = await place(t)
  for (const argv of [
    ['git', 'commit', '--allow-empty'],
    ['git', 'rebase', '-i', 'HEAD~2'],
  ]) {
    const { status, stdout } = await console.run(argv)
    assert.notEqual(status, 0)
    assert.match(stdout, /rexec: no editor, because the command has no terminal\. Give the text as an option, such as git commit -m TEXT/)
  }
  await writeFile(join(console.dir, 'editor'), '#!/bin/sh\necho mine > "$1"\n', { mode: 0o755 })
  for (const name of ['GIT_EDITOR', 'EDITOR', 'VISUAL']) {
    const { status, stdout } = await console.run(['git', 'commit', '--allow-empty'], ['-e', `${name}=${join(console.dir, 'editor')}`])
    assert.deepEqual([status, /mine/.test(stdout)], [0, true], stdout)
  }
})

test('a password prompt fails at once', OPTIONS, async (t) => {
  const console = await place(t)
  const { status, stdout } = await console.run(['sh', '-c', 'printf "protocol=https\\nhost=x.example\\n\\n" | git credential fill'])
  assert.notEqual(status, 0)
  assert.match(stdout, /terminal prompts disabled/)
})
