import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, createWriteStream } from 'node:fs'
import { chmod, mkdir, readdir, writeFile } from 'node:fs/promises'
import { arch } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { test, type TestContext } from 'node:test'

import { COPIES_DIRECTORY } from '../../src/process/private-copies.ts'
import { askingMcp, startDesk, type DeskProcess } from '../../test/support/approvals-place.ts'
import { until } from '../../test/support/processes.ts'

// An AI agent replaces a file in its root after an approver has allowed it. The attack runs in a sandbox that needs no approval.

const ROUNDS = 25
/**
 * Milliseconds from the first read of the file after the approval. Without a private copy, the file could be replaced for 1 to 45 ms on the
 * host, and from 10 to 60 ms in a sandbox.
 */
const DELAYS = {
  gateway: [0, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45],
  sandbox: [0, 5, 8, 10, 12, 14, 16, 18, 20, 25, 30, 40, 60],
}
const WAYS = ['write', 'rename', 'directory']

/** The numbers of inotify_init1(2) and inotify_add_watch(2). */
const CALLS = arch() === 'arm64' ? [26, 27] : [294, 254]

/** For each line of input, waits until a process has read the file of that directory, and then replaces it. */
const WATCHER = `
my ($root, $init, $add) = @ARGV;
open(my $go, '<', "$root/go"); open(my $said, '>', "$root/said"); select($said); $| = 1;
while (my $line = <$go>) {
  my ($dir, $way, $delay) = split ' ', $line;
  my $place = "$root/$dir";
  my $number = syscall($init + 0, 0);
  syscall($add + 0, $number, $place, 0x10); # IN_CLOSE_NOWRITE
  open(my $events, '<&=', $number);
  print "armed\\n";
  sysread($events, my $event, 4096);
  select(undef, undef, undef, $delay / 1000) if $delay > 0;
  if ($way eq 'write') { open(my $file, '>', "$place/deploy.sh"); print $file "#!/bin/sh\\necho EVIL\\n"; close($file); }
  if ($way eq 'rename') { rename("$root/$dir.new/deploy.sh", "$place/deploy.sh"); }
  if ($way eq 'directory') { rename($place, "$root/$dir.old"); rename("$root/$dir.new", $place); }
  close($events);
  print "exchanged\\n";
}
`

const copiesIn = async (desk: DeskProcess): Promise<string[]> =>
  (await readdir(join(desk.paths.dir, COPIES_DIRECTORY), { recursive: true })).filter((name) => name.endsWith('.sh'))

const setUp = async (t: TestContext) => {
  const desk = await startDesk(t)
  await desk.modes('reviewer', { security: 'allowlist' })
  const agent = await askingMcp(t, desk, { more: 'allowed_hosts = ["sandbox", "gateway"]\n' })
  return { desk, agent, human: await desk.human(), root: agent.root }
}

/** Starts a watcher in a sandbox before any command needs approval. */
const startWatcher = async (t: TestContext, { agent, root }: Awaited<ReturnType<typeof setUp>>) => {
  execFileSync('mkfifo', [join(root, 'go'), join(root, 'said')])
  await writeFile(join(root, 'watch.pl'), WATCHER)
  const args = [join(root, 'watch.pl'), root, ...CALLS.map(String)]
  const run = await agent.run('exec_capture', { command: 'perl', args, host: 'sandbox', timeout_seconds: 120, answer_within_ms: 0 })
  const go = createWriteStream(join(root, 'go'))
  const answers = createReadStream(join(root, 'said'))
  t.after(() => [go, answers].map((stream) => stream.destroy()))
  const said = createInterface({ input: answers })[Symbol.asyncIterator]()
  const hear = async (word: string): Promise<void> => assert.equal((await said.next()).value, word)
  return {
    arm: async (line: string): Promise<void> => {
      go.write(`${line}\n`)
      await hear('armed')
    },
    exchanged: async () => hear('exchanged'),
    end: async (): Promise<void> => {
      go.end()
      await once(go, 'close')
      await agent.run('exec_wait', { run_id: run.run_id, answer_within_ms: 10_000 })
    },
  }
}

const CASES = [
  ['a script on the host', 'gateway', (file: string) => ['sh', file]],
  ['a program on the host, started by a shell', 'gateway', (file: string) => ['sh', '-c', file]],
  ['a script in a sandbox, started by env', 'sandbox', (file: string) => ['env', 'sh', file]],
  ['a program in a sandbox, called by its path', 'sandbox', (file: string) => [file]],
] as const

for (const [what, host, argvOf] of CASES)
  test(`${what} that is replaced after its approval does not run: the run uses the bytes that were hashed`, async (t) => {
    const place = await setUp(t)
    const { desk, agent, human, root } = place
    const watcher = await startWatcher(t, place)
    const ran: string[] = []
    for (let round = 0; round < ROUNDS; round += 1) {
      const file = join(root, `r${round}`, 'deploy.sh')
      for (const [directory, word] of [
        [`r${round}`, 'GOOD'],
        [`r${round}.new`, 'EVIL'],
      ] as const) {
        await mkdir(join(root, directory))
        await writeFile(join(root, directory, 'deploy.sh'), `#!/bin/sh\necho ${word}\n`)
        await chmod(join(root, directory, 'deploy.sh'), 0o755)
      }
      const [command = '', ...args] = argvOf(file)
      const asked = await agent.run('exec_capture', { command, args, host, ask: 'always', answer_within_ms: 0 })
      const question = await human.question()
      assert.deepEqual(
        question.question.writable.map(({ path }) => path),
        [file],
      )
      assert.ok(!question.decisions.includes('allow_always'))
      // In the last round the file is not replaced.
      const isWatched = round < ROUNDS - 1
      if (isWatched) await watcher.arm(`r${round} ${WAYS[round % WAYS.length]} ${DELAYS[host][round % DELAYS[host].length]}`)
      await human.decide(question, 'allow_once')
      const { stdout } = await agent.run('exec_wait', { run_id: asked.run_id, answer_within_ms: 30_000 })
      ran.push((stdout ?? '').trim())
      if (isWatched) await watcher.exchanged()
    }
    await watcher.end()
    assert.equal(ran.filter((one) => one.includes('EVIL')).length, 0, `${ROUNDS} rounds: ${ran.join(' ')}`)
    assert.equal(ran.at(-1), 'GOOD', ran.join(' '))
    t.diagnostic(`${ROUNDS} rounds: ${ran.filter((one) => one === 'GOOD').length} ran as approved, none was exchanged`)
    assert.deepEqual(await copiesIn(desk), [])
  })

test('a sandboxed run sees only its own copy, read-only, and no copy of another run', async (t) => {
  const { agent, human, root } = await setUp(t)
  const script = async (name: string, text: string) => {
    await writeFile(join(root, name), text)
    const call = { command: 'sh', args: [join(root, name)], host: 'sandbox', ask: 'always', answer_within_ms: 0 }
    const asked = await agent.run('exec_capture', call)
    await human.decide(await human.question(), 'allow_once')
    return asked.run_id
  }
  execFileSync('mkfifo', [join(root, 'begun')])
  const first = await script('first.sh', 'echo begun > begun; exec sleep 60\n')
  await once(createReadStream(join(root, 'begun')), 'data')
  const look = 'find "$(dirname "$0")/../.." -type f | wc -l; { echo x > "$0"; } 2> /dev/null || echo refused\n'
  const second = await script('second.sh', look)
  const { stdout } = await agent.run('exec_wait', { run_id: second, answer_within_ms: 30_000 })
  assert.equal(stdout, '1\nrefused\n')
  await agent.run('exec_kill', { run_id: first })
})

test('a server removes copies of a killed server at its start, and keeps those of a running server', async (t) => {
  const { desk, agent, human, root } = await setUp(t)
  await writeFile(join(root, 'long.sh'), 'echo begun; exec sleep 60\n')
  const start = async (server: typeof agent): Promise<void> => {
    await server.run('exec_capture', { command: 'sh', args: [join(root, 'long.sh')], host: 'gateway', ask: 'always', answer_within_ms: 0 })
    const before = (await copiesIn(desk).catch(() => [])).length
    await human.decide(await human.question(), 'allow_once')
    await until(async () => (await copiesIn(desk).catch(() => [])).length > before)
  }
  await start(agent)
  process.kill(agent.pid, 'SIGKILL')
  assert.equal((await copiesIn(desk)).length, 1)
  const next = await askingMcp(t, desk, {}, 'reviewer')
  assert.deepEqual(await copiesIn(desk), [])
  const file = join(next.root, 'long.sh')
  await writeFile(file, 'exec sleep 60\n')
  await next.run('exec_capture', { command: 'sh', args: [file], host: 'gateway', ask: 'always', answer_within_ms: 0 })
  await human.decide(await human.question(), 'allow_once')
  await until(async () => (await copiesIn(desk)).length === 1)
  await askingMcp(t, desk, {}, 'reviewer')
  assert.equal((await copiesIn(desk)).length, 1)
  await next.close()
  await until(async () => (await copiesIn(desk)).length === 0)
})
