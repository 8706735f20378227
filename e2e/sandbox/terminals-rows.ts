import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { readdir } from 'node:fs/promises'

import { terminalProblem } from '../../src/process/terminal.ts'
import { until } from '../../test/support/processes.ts'
import { runSandboxed, startSandboxed } from '../../test/support/sandboxed.ts'
import { row, type Row } from './row.ts'

// A sandboxed run gets three streams or a terminal from its starter, and the environment of the permit.

const sh = (text: string): string[] => ['sh', '-c', text]
const ON_HOST = { only: 'host', skip: terminalProblem() } as const
const SIZE = { cols: 100, rows: 30 }
const TIOCSTI = '0x5412'

export const TERMINAL_ROWS: readonly Row[] = [
  row('a run has three file descriptors, and none of them leads to a file of the host', async (t, house) => {
    const { stdout } = await runSandboxed(
      t,
      house,
      sh('ls /proc/self/fd; readlink /proc/self/fd/0; cat /proc/self/fd/1/../../etc 2>&1; ls -l /proc/1/fd | grep -c " /[^ ]*$"'),
      {
        stdin: '',
      },
    )
    // The fourth descriptor is the directory that ls opens.
    assert.match(stdout, /^0\n1\n2\n3\nsocket:\[\d+\]\n.*(Not a directory|No such file).*\n0\n$/)
  }),

  row('without a terminal, a run has no controlling terminal and finds none to open', async (t, house) => {
    const { stdout } = await runSandboxed(t, house, sh('cut -d" " -f7 /proc/self/stat; (echo x > /dev/tty) 2>&1; ls /dev/pts'))
    assert.match(stdout, /^0\n.*No such device or address\nptmx\n$/)
  }),

  row('a run cannot fake input on a terminal that it opens itself', async (t, house) => {
    const open = `open(my $m, "+<", "/dev/ptmx") or die "$!"; my $n = pack("i", 0); ioctl($m, 0x40045431, $n) or die "$!";
    ioctl($m, 0x80045430, $n) or die "$!"; open(my $s, "+<", "/dev/pts/" . unpack("i", $n)) or die "$!";
    my $c = "x"; for my $h ($m, $s) { print ioctl($h, ${TIOCSTI}, $c) ? "TYPED" : $!{EPERM} ? "refused" : "$!", "\\n" }`
    const { stdout, stderr } = await runSandboxed(t, house, ['perl', '-MErrno', '-e', open])
    assert.equal(stdout, 'refused\nrefused\n', stderr)
  }),

  row(
    'a sandbox from an image refuses a terminal before the command starts',
    async (t, house) => {
      const started = await startSandboxed(t, house, sh('touch ran'), { terminal: SIZE })
      assert.match('failed' in started ? started.failed : 'it ran', /a sandbox from an image has no terminal/)
      assert.deepEqual(await readdir(house.project), [])
    },
    { only: 'image' },
  ),

  row(
    'a run cannot fake input on any terminal, not even its own',
    async (t, house) => {
      const type = `my $c = "x"; for my $f (0, 1, 2) { open(my $h, "+<&=", $f); print ioctl($h, ${TIOCSTI}, $c) ? "TYPED" : $!{EPERM} ? "refused" : "$!", "\\n" }
    if (open(my $h, "+<", "/dev/tty")) { print ioctl($h, ${TIOCSTI}, $c) ? "TYPED" : $!{EPERM} ? "refused" : "$!", "\\n" }`
      const { stdout } = await runSandboxed(t, house, ['perl', '-MErrno', '-e', type], { terminal: SIZE })
      assert.match(stdout, /^(refused\r\n){3,4}$/)
    },
    ON_HOST,
  ),

  row(
    'a run with a terminal sees only its own, which has a size, and Ctrl-C ends the program',
    async (t, house) => {
      const { stdout } = await runSandboxed(t, house, sh('tty; ls /dev/pts | tr "\\n" " "; stty size; echo here > /dev/tty; pwd'), {
        terminal: SIZE,
      })
      assert.equal(stdout, `/dev/pts/0\r\n0 ptmx 30 100\r\nhere\r\n${house.project}\r\n`)
      // Not a shell, because a shell that is just forking would miss the signal.
      const started = await startSandboxed(t, house, ['perl', '-e', '$| = 1; print "ready\n"; sleep 1000'], { terminal: SIZE })
      assert.ok(!('failed' in started))
      await until(() => started.stdout().includes('ready'))
      await started.process.stdin?.write(Buffer.from('\u0003'))
      const end = await started.process.ended
      assert.ok(end.signal === 2 || end.code === 130, JSON.stringify([end.code, end.signal]))
    },
    ON_HOST,
  ),

  row(
    'a raw terminal works in a sandbox, with the environment of the permit',
    async (t, house) => {
      const { stdout } = await runSandboxed(t, house, sh('printf "%s\\n" "$COLOR"; pwd'), {
        terminal: { ...SIZE, raw: true },
        env: { COLOR: 'blue' },
      })
      assert.equal(stdout, `blue\n${house.project}\n`)
    },
    ON_HOST,
  ),

  row('a run has only the environment of the permit plus PWD, and bwrap has none of it', async (t, house, form) => {
    const env = { TOKEN: 'a secret of the caller', LD_PRELOAD: `${house.project}/evil.so`, NODE_OPTIONS: '--require ./evil.js' }
    const started = await startSandboxed(t, house, sh('env | sort; echo ready; sleep 1000'), { env })
    assert.ok(!('failed' in started))
    await until(() => started.stdout().includes('ready'))
    const names = started
      .stdout()
      .split('\n')
      .filter((line) => line.includes('='))
      .map((line) => line.split('=')[0])
    const ofImage = form === 'image' ? ['FROM_IMAGE'] : []
    assert.deepEqual(names, [...ofImage, 'HOME', 'LANG', 'LC_ALL', 'LD_PRELOAD', 'NODE_OPTIONS', 'PATH', 'PWD', 'TOKEN'])
    const { pid } = started.process
    assert.equal(readFileSync(`/proc/${pid}/environ`, 'latin1'), '')
    assert.doesNotMatch(readFileSync(`/proc/${pid}/cmdline`, 'latin1'), /secret|evil/)
  }),
]
