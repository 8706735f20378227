import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'

import { terminalProblem } from '../../src/process/native-pty.ts'
import { needsPerl } from '../../test/support/perl-programs.ts'
import { until } from '../../test/support/processes.ts'
import { household, needsSandbox, runSandboxed, startSandboxed, titled } from '../../test/support/sandboxed.ts'

// What a run in a sandbox is handed by whoever starts it: three streams, or a terminal of its own, and the permit's environment.

const needs = { skip: needsSandbox.skip || needsPerl.skip }
const needsTerminal = { skip: needs.skip || terminalProblem() !== null }
const sh = (text: string): string[] => ['sh', '-c', text]
const SIZE = { cols: 100, rows: 30 }
const TIOCSTI = '0x5412'

test(titled('it has three descriptors and no other, and none of them leads anywhere'), needs, async (t) => {
  const house = await household(t)
  const { stdout } = await runSandboxed(
    t,
    house,
    sh('ls /proc/self/fd; readlink /proc/self/fd/0; cat /proc/self/fd/1/../../etc 2>&1; ls -l /proc/1/fd | grep -c " /[^ ]*$"'),
    {
      stdin: '',
    },
  )
  // ls opens the directory that it lists.
  assert.match(stdout, /^0\n1\n2\n3\nsocket:\[\d+\]\n.*(Not a directory|No such file).*\n0\n$/)
})

test(titled('without a terminal it leads no session that has one, and there is none to open'), needs, async (t) => {
  const house = await household(t)
  const { stdout } = await runSandboxed(t, house, sh('cut -d" " -f7 /proc/self/stat; (echo x > /dev/tty) 2>&1; ls /dev/pts'))
  assert.match(stdout, /^0\n.*No such device or address\nptmx\n$/)
})

test(titled('nothing can be typed on a terminal, its own included'), needsTerminal, async (t) => {
  const house = await household(t)
  const type = `my $c = "x"; for my $f (0, 1, 2) { open(my $h, "+<&=", $f); print ioctl($h, ${TIOCSTI}, $c) ? "TYPED" : $!{EPERM} ? "refused" : "$!", "\\n" }
    if (open(my $h, "+<", "/dev/tty")) { print ioctl($h, ${TIOCSTI}, $c) ? "TYPED" : $!{EPERM} ? "refused" : "$!", "\\n" }`
  const { stdout } = await runSandboxed(t, house, ['perl', '-MErrno', '-e', type], { terminal: SIZE })
  assert.match(stdout, /^(refused\r\n){3,4}$/)
})

test(titled('its terminal is one of its own: there is no other, it has a size, and Ctrl-C ends the program'), needsTerminal, async (t) => {
  const house = await household(t)
  const { stdout } = await runSandboxed(t, house, sh('tty; ls /dev/pts | tr "\\n" " "; stty size; echo here > /dev/tty; pwd'), {
    terminal: SIZE,
  })
  assert.equal(stdout, `/dev/pts/0\r\n0 ptmx 30 100\r\nhere\r\n${house.project}\r\n`)
  const started = await startSandboxed(t, house, sh('echo ready; sleep 1000'), { terminal: SIZE })
  assert.ok(!('failed' in started))
  await until(() => started.stdout().includes('ready'))
  await started.process.stdin?.write(Buffer.from('\u0003'))
  const end = await started.process.ended
  assert.ok(end.signal === 2 || end.code === 130, JSON.stringify([end.code, end.signal]))
})

test(titled('a raw terminal works in a sandbox, with the environment of the permit'), needsTerminal, async (t) => {
  const house = await household(t)
  const { stdout } = await runSandboxed(t, house, sh('printf "%s\\n" "$COLOR"; pwd'), {
    terminal: { ...SIZE, raw: true },
    env: { COLOR: 'blue' },
  })
  assert.equal(stdout, `blue\n${house.project}\n`)
})

test(titled('the environment is the permit’s and the name of its directory, and bwrap itself has none of it'), needs, async (t) => {
  const house = await household(t)
  const env = { TOKEN: 'a secret of the caller', LD_PRELOAD: `${house.project}/evil.so`, NODE_OPTIONS: '--require ./evil.js' }
  const started = await startSandboxed(t, house, sh('env | sort; echo ready; sleep 1000'), { env })
  assert.ok(!('failed' in started))
  await until(() => started.stdout().includes('ready'))
  const names = started
    .stdout()
    .split('\n')
    .filter((line) => line.includes('='))
    .map((line) => line.split('=')[0])
  assert.deepEqual(names, ['HOME', 'LANG', 'LC_ALL', 'LD_PRELOAD', 'NODE_OPTIONS', 'PATH', 'PWD', 'TOKEN'])
  const { pid } = started.process
  assert.equal(readFileSync(`/proc/${pid}/environ`, 'latin1'), '')
  assert.doesNotMatch(readFileSync(`/proc/${pid}/cmdline`, 'latin1'), /secret|evil/)
})
