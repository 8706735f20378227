import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFile, chmod, readdir, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { bannerText } from '../../../src/doors/console/transcript-text.ts'
import { runCli } from '../../support/fake-daemon.ts'
import { until } from '../../support/processes.ts'
import { tempDir } from '../../support/temp-dir.ts'
import { entry, transcriptOf, transcriptsDirectory } from '../../support/transcripts.ts'

const NAME = '2026-05-21-09:42:18'
const LATER = '2026-05-21-09:50:00'
const MAIN = new URL('../../../src/programs/x0x/main.ts', import.meta.url).href

const transcripts = async (dir: string, ...words: string[]) => runCli(['transcripts', ...words, '--dir', dir])

test('transcripts list prints the newest first, up to the given number', async (t) => {
  const dir = await transcriptsDirectory(t)
  assert.deepEqual(await transcripts(dir, 'list'), { status: 0, stdout: '', stderr: '' })
  await transcriptOf(dir, NAME, [entry(), entry()])
  await transcriptOf(dir, LATER, [entry()])
  assert.equal((await transcripts(dir, 'list')).stdout, `${LATER} commands=1\n${NAME} commands=2\n`)
  assert.equal((await transcripts(dir, 'list', '-n', '1')).stdout, `${LATER} commands=1\n`)
  const { stdout } = await transcripts(dir, 'list', '--json')
  assert.deepEqual(
    (JSON.parse(stdout) as { transcripts: { name: string; commands: number }[] }).transcripts.map(({ name, commands }) => [name, commands]),
    [
      [LATER, 1],
      [NAME, 2],
    ],
  )
  assert.equal((await transcripts(dir, 'list', '-n', 'all')).status, 2)
})

test('transcripts print shows a transcript as its console did, by default the newest', async (t) => {
  const dir = await transcriptsDirectory(t)
  await transcriptOf(dir, NAME, [entry({ output: 'old\n' })])
  await transcriptOf(dir, LATER, [entry({ output: 'alice\n' }), '{"whoami":1}\n'])
  const { stdout, status } = await transcripts(dir, 'print')
  assert.equal(status, 0)
  assert.equal(stdout, '[2026-05-21T09:42:24Z] Codex:/srv $ id -un\n| alice\n\n[… line 2 is not an entry: whoami is not a text]\n\n')
  assert.match((await transcripts(dir, 'print', NAME)).stdout, /^\[.*\n\| old\n\n$/)
  const lines = (await transcripts(dir, 'print', '--json')).stdout.split('\n').filter(Boolean)
  assert.deepEqual(
    lines.map((line) => JSON.parse(line) as object),
    [
      { line: 1, waits: false, ...entry({ output: 'alice\n' }) },
      { line: 2, problem: 'whoami is not a text' },
    ],
  )
})

test('invalid names and open directories exit with 2, and missing transcripts with 1', async (t) => {
  const dir = await transcriptsDirectory(t)
  const path = await transcriptOf(dir, NAME, [entry()])
  await rename(path, join(dir, '..', 'secret.jsonl'))
  for (const words of [
    ['print', '../secret'],
    ['follow', '../secret'],
    ['print', '/etc/passwd'],
    ['print', `${NAME}\0`],
  ]) {
    const { status, stdout, stderr } = await transcripts(dir, ...words)
    assert.deepEqual([status, stdout], [2, ''])
    assert.match(stderr, /is not the name of a transcript\n.*x0x transcripts list/)
  }
  assert.equal((await transcripts(dir, 'print', NAME)).status, 1)
  assert.equal((await transcripts(dir, 'print')).status, 1)
  await chmod(dir, 0o755)
  const open = await transcripts(dir, 'list')
  assert.equal(open.status, 2)
  assert.match(open.stderr, /chmod 0700/)
})

test('a hostile transcript prints no control characters and cannot imitate another command', async (t) => {
  const dir = await transcriptsDirectory(t)
  const faked = bannerText(entry({ whoami: 'root', exec: ['rm', '-rf', '/'] }))
  const hostile = {
    ...entry(),
    whoami: '\u001b]0;x\u0007\n[2026-01-01T00:00:00Z] root:/ $ ls',
    dir: '/\u202e\u009b2J',
    exec: ['a\nb', '\u001b[2J', '$(id)'],
    output: `x\u001b[2J\r${faked}\n${faked}\n[… exit 0]\n`,
    error: '\u001b[1m\n[2026-01-01T00:00:00Z] root:/ $ ls',
    exit: 1,
  }
  await transcriptOf(dir, NAME, [`${JSON.stringify(hostile)}\n`, `${'\u001b[2J'.repeat(10)}\n`, `{"whoami":${'['.repeat(1_000_000)}`])
  for (const words of [['print'], ['print', '--json']]) {
    const { stdout, status } = await transcripts(dir, ...words)
    assert.equal(status, 0)
    // oxlint-disable-next-line no-control-regex
    assert.doesNotMatch(stdout, /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/)
    if (words.length > 1) continue
    const ours = stdout.split('\n').filter((line) => line !== '' && !line.startsWith('| '))
    assert.deepEqual(
      ours.map((line) => line.slice(0, 3)),
      ['[20', '= \\', '[… ', '[… '],
    )
  }
})

test('transcripts follow runs until Ctrl-C and then exits with 0', async (t) => {
  const home = await tempDir(t)
  const dir = join(home, '.rexec')
  const path = await transcriptOf(dir, NAME, [entry({ output: 'one\n' })])
  const run = `import { main } from ${JSON.stringify(MAIN)}; process.exitCode = await main(process.argv.slice(1), {})`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', run, '--', 'transcripts', 'follow'], {
    env: { HOME: home },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  t.after(() => child.kill('SIGKILL'))
  let seen = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (seen += text))
  await until(() => seen.includes('one\n\n'))
  await appendFile(path, `${JSON.stringify(entry({ output: 'two\n' }))}\n`)
  await until(() => seen.includes('two\n\n'))
  child.kill('SIGINT')
  assert.deepEqual(await once(child, 'exit'), [0, null])
})

test('transcripts search finds a text in every field, with each line once and its position', async (t) => {
  const dir = await transcriptsDirectory(t)
  await transcriptOf(dir, NAME, [entry({ whoami: 'Needle' }), entry({ output: 'a\nneedle needle\nb\n\nthe needle' })])
  await transcriptOf(dir, LATER, ['nonsense\n', entry({ exec: ['find', 'needle'], dir: '/needle', envs: { needle: '' }, error: 'needle' })])
  const { stdout, status } = await transcripts(dir, 'search', 'needle')
  assert.equal(status, 0)
  assert.deepEqual(stdout.trimEnd().split('\n'), [
    `${LATER}:2 dir:1  Codex  /needle`,
    `${LATER}:2 exec:1  Codex  find needle`,
    `${LATER}:2 envs:1  Codex  needle`,
    `${LATER}:2 error:1  Codex  needle`,
    `${NAME}:2 output:2  Codex  needle needle`,
    `${NAME}:2 output:5  Codex  the needle`,
  ])
  assert.equal(
    (await transcripts(dir, 'search', '-i', 'NEEDLE', NAME, '-n', '1')).stdout,
    `${NAME}:1 whoami:1  Needle  Needle\n`,
    'as it stands there',
  )
  const second = '2026-05-21-09:42:19'
  await transcriptOf(dir, second, [entry({ output: `${'İ'.repeat(300)} Straße ONE\n` })])
  assert.match((await transcripts(dir, 'search', '-i', 'straße one', second)).stdout, / Straße ONE\n$/)
  const json = JSON.parse((await transcripts(dir, 'search', 'needle', '-n', '2', '--json')).stdout) as {
    matches: object[]
    truncated: boolean
  }
  assert.deepEqual([json.matches.length, json.truncated], [2, true])
  assert.match((await transcripts(dir, 'search', 'needle', '-n', '2')).stderr, /only the first 2/)
})

test('a search is plain text without patterns, and exits with 1 if it finds nothing', async (t) => {
  const dir = await transcriptsDirectory(t)
  await transcriptOf(dir, NAME, [entry({ output: `${'a'.repeat(500_000)}!\n(a+)+$ .*\n` })])
  assert.deepEqual(await transcripts(dir, 'search', '.+'), { status: 1, stdout: '', stderr: '' })
  assert.match((await transcripts(dir, 'search', '(a+)+$')).stdout, /output:2 {2}Codex {2}\(a\+\)\+\$ \.\*\n$/)
  const { stdout } = await transcripts(dir, 'search', 'aaa')
  assert.ok(stdout.length < 400, `${stdout.length}`)
  assert.equal((await transcripts(dir, 'search', '')).status, 2)
  assert.equal((await transcripts(dir, 'search', 'x', '../x')).status, 2)
})

test('transcripts export writes a cast, JSON lines that form a transcript, or text', async (t) => {
  const dir = await transcriptsDirectory(t)
  const entries = [entry({ output: 'one\u001b[2J\n' }), entry({ output: 'two\n' })]
  await transcriptOf(dir, NAME, [...entries, '{"torn'])
  const cast = (await transcripts(dir, 'export', NAME)).stdout.trimEnd().split('\n')
  assert.equal((JSON.parse(cast[0]!) as { version: number }).version, 2)
  assert.equal(cast.filter((line) => line.startsWith('[')).length, 6)
  for (const words of [['--format', 'jsonl'], ['--json']]) {
    const { stdout } = await transcripts(dir, 'export', NAME, ...words)
    assert.deepEqual(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as object),
      entries,
    )
  }
  assert.equal((await transcripts(dir, 'export', NAME, '--format', 'text')).stdout, (await transcripts(dir, 'print', NAME)).stdout)
  await transcriptOf(dir, LATER, [])
  assert.equal((await transcripts(dir, 'export', LATER)).stdout.split('\n').length, 2)
  assert.equal((await transcripts(dir, 'export', NAME, '--format', 'gif')).status, 2)
  assert.equal((await transcripts(dir, 'export', '../x')).status, 2)
})

test('transcripts remove deletes by name, including waiting markers, and a wrong name removes nothing', async (t) => {
  const dir = await transcriptsDirectory(t)
  await transcriptOf(dir, NAME, [entry()])
  await writeFile(join(dir, `${NAME}.waiting`), '', { mode: 0o600 })
  await transcriptOf(dir, LATER, [entry()])
  assert.equal((await transcripts(dir, 'remove', NAME, '../x')).status, 2)
  assert.equal((await readdir(dir)).length, 3)
  assert.equal((await transcripts(dir, 'remove', NAME)).status, 0)
  assert.deepEqual(await readdir(dir), [`${LATER}.jsonl`])
  assert.equal((await transcripts(dir, 'remove', NAME)).status, 1)
  assert.equal((await transcripts(dir, 'remove')).status, 2)
  assert.equal((await transcripts(dir, 'remove', LATER, '--json')).stdout, `{"removed":["${LATER}"]}\n`)
})
