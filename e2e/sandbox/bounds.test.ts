import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'

import type { SandboxSettings } from '../../src/policy/sandbox/sandbox-settings.ts'
import { ProcessTrees } from '../../src/process/process-trees.ts'
import { isRoot, needs } from '../../test/support/containment.ts'
import { needsPerl } from '../../test/support/perl-programs.ts'
import { silent } from '../../test/support/processes.ts'
import { cellsOf, household, needsSandbox, runSandboxed, startSandboxed, titled } from '../../test/support/sandboxed.ts'

// Limits of a run in a sandbox. If a required limit cannot be enforced, the run does not start.

const MIB = 1024 * 1024
const CHECK = fileURLToPath(new URL('../../test/support/sandbox-check.ts', import.meta.url))

const needsAll = (...skips: readonly (boolean | string | undefined)[]) => ({
  skip: skips.find((one) => one !== undefined && one !== false) ?? false,
})
const needsMemory = needsAll(needsSandbox.skip, needsPerl.skip, needs.memory.skip)
const needsPids = needsAll(needsSandbox.skip, needsPerl.skip, needs.pids.skip)

test(titled('a run that exceeds the memory limit of its sandbox is killed, and a run below it is not'), needsMemory, async (t) => {
  const house = await household(t)
  const trees = await cellsOf(t, 'group')
  const run = async (text: string) => runSandboxed(t, house, ['sh', '-c', text], { trees, settings: { max_memory_bytes: 48 * MIB } })
  const fill = (mib: number): string => `perl -e 'my $x = "x" x (${mib} << 20); print length($x) >> 20' && echo " ends"`
  assert.deepEqual(await run(fill(16)).then(({ stdout, end }) => [stdout, end.code]), ['16 ends\n', 0])
  const together = `$SIG{CHLD} = sub { exit 1 }; pipe(my $in, my $out);
    for (1..6) { fork or do { my $x = "x" x (16 << 20); syswrite $out, "x"; sleep 1000 } }
    for (1..6) { sysread $in, my $one, 1 } $SIG{CHLD} = "DEFAULT"; print "all ends"`
  const ways = {
    'of one process': fill(80),
    'of many together': `perl -e '${together}'`,
    'of files in memory': `head -c ${32 * MIB} /dev/zero > /tmp/a && head -c ${32 * MIB} /dev/zero > /dev/shm/b && echo ends`,
  }
  for (const [name, text] of Object.entries(ways)) {
    const { stdout, end } = await run(text)
    assert.deepEqual([stdout, end.code !== 0, name], ['', true, name])
    assert.match((await runSandboxed(t, house, ['sh', '-c', text])).stdout, /ends/, 'it ends for another reason')
  }
})

test(titled('a fork bomb stays within the process limit of its sandbox'), needsPids, async (t) => {
  const house = await household(t)
  const program =
    'my $n = 0; for (1..500) { my $p = fork(); last unless defined $p; if (!$p) { sleep 1000 } $n++ } print "$n\\n"; kill 9, -1'
  const { stdout } = await runSandboxed(t, house, ['perl', '-e', `$| = 1; ${program}`], { settings: { max_processes: 24 } })
  assert.ok(Number(stdout) >= 16 && Number(stdout) <= 24, stdout)
})

test(
  titled('if a configured limit cannot be enforced, no command runs and the message names it; without limits it runs'),
  needsSandbox,
  async (t) => {
    const house = await household(t)
    const trees = await ProcessTrees.open({ cleanup: null, log: silent }, { choice: 'group', dataDir: null, places: [] })
    const asked: readonly Partial<SandboxSettings>[] = [{ max_memory_bytes: 64 * MIB }, { max_processes: 64 }]
    for (const settings of asked) {
      const started = await startSandboxed(t, house, ['touch', 'ran'], { trees, settings })
      const [key = ''] = Object.keys(settings)
      assert.match(
        'failed' in started ? started.failed : 'it ran',
        new RegExp(`^${key} cannot be enforced: .*Delegate=yes.*take ${key} out of`),
      )
    }
    assert.deepEqual(await readdir(house.project), [])
    assert.equal((await runSandboxed(t, house, ['echo', 'ran'], { trees })).stdout, 'ran\n')
  },
)

/** Findings of the configuration check for sandboxes with these settings. */
const found = async (settings: readonly Partial<SandboxSettings>[], through: readonly string[] = []): Promise<string[]> => {
  const [file, ...args] = [...through, process.execPath, CHECK, JSON.stringify(settings)]
  const { stdout } = await promisify(execFile)(file, args)
  return (JSON.parse(stdout) as readonly { readonly text: string }[]).map(({ text }) => text)
}

test(titled('the configuration check reports the limits of a sandbox'), needsMemory, async () => {
  const [bounded = '', unasked = ''] = await found([{ max_memory_bytes: 64 * MIB, max_processes: 64 }, {}])
  assert.match(bounded, /works; at most 67108864 bytes of memory; at most 64 processes$/)
  assert.match(unasked, /its memory is not limited \(max_memory_bytes\); at most 1024 processes$/)
})

test(
  titled('without control groups, the configuration check reports that a run with a memory limit is refused'),
  needsAll(needsSandbox.skip, isRoot ? false : 'needs root'),
  async () => {
    const hidden = ['unshare', '-m', 'sh', '-c', 'umount -R -l /sys/fs/cgroup 2>/dev/null; exec "$@"', 'sh']
    const [asked = '', unasked = ''] = await found([{ max_memory_bytes: 64 * MIB }, {}], hidden)
    assert.match(asked, /are refused: max_memory_bytes cannot be enforced: no /)
    assert.match(unasked, /the number of processes is not limited, because no control group is available$/)
  },
)
