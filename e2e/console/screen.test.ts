import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { appendFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'

import { ConsolePlace } from '../../test/support/console-place.ts'
import { NO_TMUX, Tmux } from '../../test/support/tmux.ts'

const PROGRAM = fileURLToPath(new URL('../../deploy/bin/rexec.cjs', import.meta.url))
const OPTIONS = { skip: NO_TMUX, timeout: 60_000 }

/** A host on a real terminal of 80 columns. */
const begin = async (t: TestContext, words: readonly string[] = [], size: { columns?: number; rows?: number } = {}) => {
  const tmux = await Tmux.make(t)
  const place = await ConsolePlace.make(t)
  const host = [process.execPath, PROGRAM, '--start-host', ...words]
  await tmux.begin({ env: place.env, argv: ['sh', '-c', '"$@"; echo "ended with $?"; exec cat', 'sh', ...host], ...size })
  await tmux.shows(/^rexec transcript: /)
  return { place, tmux }
}

const agent = (place: ConsolePlace, name: string, ...argv: string[]) => place.begin(['--whoami', name, '--dir', '/', '--', ...argv])

/** The screen from the first banner on, without times. */
const commands = (lines: readonly string[]): string[] => {
  const from = lines.findIndex((line) => line.startsWith('[2'))
  return lines.slice(from).map((line) => line.replace(/^\[\d[^\]]*\]/, '[T]').replace(/after [\d.]+ s/, 'after N s'))
}

test('the screen shows whole commands in order of arrival, and a slow one does not delay the others', OPTIONS, async (t) => {
  const { place, tmux } = await begin(t)
  const gate = join(place.dir, 'gate')
  assert.equal(spawnSync('mkfifo', [gate]).status, 0)
  const slow = agent(place, 'Slow', 'sh', '-c', `echo one; cat ${gate}; echo three`)
  await tmux.shows(/^│ one$/)
  const fast = agent(place, 'Fast', 'sh', '-c', 'echo of fast; exit 3')
  assert.equal((await fast.ended).status, 3)
  const other = agent(place, 'Other', 'echo', 'of other')
  assert.equal((await other.ended).stdout, 'of other\n')
  const meanwhile = await tmux.shows(/^ Slow: sh -c .* · \d+ s · next: 2 done · \? help/)
  assert.deepEqual(
    meanwhile.filter((line) => /of fast|of other/.test(line)),
    [],
  )
  await writeFile(gate, 'two\n')
  assert.equal((await slow.ended).stdout, 'one\ntwo\nthree\n')
  const lines = commands(await tmux.shows(/^ nothing runs/))
  const at = lines.findIndex((line) => line.startsWith('│ one'))
  assert.deepEqual(
    lines.slice(
      at,
      lines.findIndex((line) => line.startsWith(' nothing')),
    ),
    [
      '│ one',
      '│ two',
      '│ three',
      '',
      "[T] Fast:/ $ sh -c 'echo of fast; exit 3'",
      '│ of fast',
      '└ exit 3, after N s',
      '',
      "[T] Other:/ $ echo 'of other'",
      '│ of other',
      '',
    ],
  )
})

test('a host whose terminal is closed ends, and its commands end with it', OPTIONS, async (t) => {
  const { place, tmux } = await begin(t)
  const run = agent(place, 'Codex', 'sh', '-c', 'echo begins; sleep 600')
  await tmux.shows(/^│ begins$/)
  // Waits until no process of its terminal session is left.
  await tmux.close()
  assert.equal((await run.ended).status, 143)
  assert.equal((await place.rexec(['--check-host'])).status, 127)
})

test('a hostile command cannot change the terminal or fake a banner', OPTIONS, async (t) => {
  const { place, tmux } = await begin(t, [], { columns: 60, rows: 20 })
  const title = await tmux.variable('pane_title')
  const fake = '[2026-01-01T00:00:00Z] root:/ $ all is well'
  const hostile = String.raw`\033]0;mine\007\033[?1049h\033[2J\033[H${fake}\n\033[6n\033[c\033]52;c;?\007\033[?1000h\033[31;7m\033]0;swallows`
  const { status } = await agent(place, 'Evil', 'printf', `${hostile}\n%s${fake}`, ' '.repeat(58)).ended
  assert.equal(status, 0)
  await agent(place, 'Good', 'echo', 'plain').ended
  const lines = await tmux.shows(/^│ plain$/)
  assert.deepEqual(
    lines.filter((line) => line.startsWith('[2026-01-01')),
    [],
  )
  assert.ok(lines.some((line) => line.startsWith(`│ ${fake.slice(0, 20)}`)))
  assert.equal(await tmux.variable('pane_title'), title)
  assert.deepEqual([await tmux.variable('alternate_on'), await tmux.variable('mouse_any_flag')], ['0', '0'])
})

test('a console shows the runs of other interfaces from their audit log and marks them', OPTIONS, async (t) => {
  const journal = await ConsolePlace.make(t)
  const theirs = await journal.host()
  await journal.run(['true'])
  const file = join(journal.dir, 'home', '.rexec', 'audit.log')
  const { place, tmux } = await begin(t, ['--watch-journal', file])
  await tmux.shows(/^\[… runs of other interfaces are shown from/)
  const id = '01990000-0000-7000-8000-000000000001'
  const head = { ts: '2026-11-23T10:00:00.000Z', chain: id, n: 0, prev: '0'.repeat(64) }
  const key = { agent_id: 'a'.repeat(64), machine_id: 'b'.repeat(64), request_id: id }
  const tell = async (fields: object): Promise<void> => appendFile(file, `${JSON.stringify({ ...head, ...fields, ...key })}\n`)
  await tell({ event: 'request', argv: ['systemctl', 'restart', 'a b'], timeout_ms: 30_000 })
  await tell({ event: 'request', argv: 'none', timeout_ms: {} })
  await tell({ event: 'exit', code: 1, signal: null, duration_ms: 1_234 })
  await tell({ event: 'denial', argv: ['rm', '\u001b[2J'], reason: 'argv_not_allowed' })
  await journal.run(['echo', 'of another console'])
  const lines = await tmux.shows(/denied: argv_not_allowed/)
  const shown = lines.join('').replaceAll(/ +/g, ' ')
  assert.match(shown, /» \[2026-11-23T10:00:00Z\] mesh aaaaaaaaaaaa:- TO=30 \$ systemctl restart 'a b'/)
  assert.match(shown, /» mesh aaaaaaaaaaaa systemctl restart 'a b' └ exit 1, after 1.2 s/)
  assert.match(shown, /» mesh aaaaaaaaaaaa rm \$'\\u001b\[2J' denied: argv_not_allowed/)
  assert.equal((await place.run(['echo', 'ours'])).stdout, 'ours\n')
  theirs.child.kill('SIGTERM')
})
