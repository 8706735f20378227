import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

import { needs as hostNeeds } from '../../test/support/containment.ts'
import { killMarked, marked } from '../../test/support/marked.ts'
import { isAlive, until } from '../../test/support/processes.ts'
import { cellsOf, runSandboxed, startSandboxed } from '../../test/support/sandboxed.ts'
import { row, type Row } from './row.ts'

// Attempts of a sandboxed run to affect other processes and the kernel, and leftovers of runs. Neither is possible.

const sh = (text: string): string[] => ['sh', '-c', text]
const newMark = (): string => `x0x-sandbox-${process.pid}-${Math.random().toString(16).slice(2)}`

/** Numbers of system calls on x64 and arm64. */
const CALLS: Readonly<Record<string, readonly [number, number]>> = {
  add_key: [248, 217],
  request_key: [249, 218],
  keyctl: [250, 219],
  bpf: [321, 280],
  io_uring_setup: [425, 425],
  userfaultfd: [323, 282],
  perf_event_open: [298, 241],
  open_by_handle_at: [304, 265],
  fsopen: [430, 430],
  mount_setattr: [442, 442],
  setns: [308, 268],
  kexec_load: [246, 104],
}

export const PROCESS_ROWS: readonly Row[] = [
  row('a run sees only its own processes, and cannot signal or trace others', async (t, house) => {
    const victim = spawn('sleep', ['1000'], { stdio: 'ignore' })
    t.after(() => victim.kill('SIGKILL'))
    const { stdout } = await runSandboxed(
      t,
      house,
      sh(
        `ls /proc | grep -c '^[0-9]'; cat /proc/${victim.pid}/cmdline 2>/dev/null; for p in $(seq 3 70000 | grep -v "^$$\\$"); do kill -9 $p 2>/dev/null; done; kill -9 -1 2>/dev/null; echo done`,
      ),
    )
    // The init process, the shell, and the two programs of the pipeline.
    assert.ok(Number(stdout.split('\n')[0]) <= 5, stdout)
    assert.equal(isAlive(victim.pid ?? 0), true)
    const trace = `my $n = syscall(${process.arch === 'x64' ? 101 : 117}, 16, ${victim.pid}, 0, 0); print $n == 0 ? "TRACED" : "$!"`
    assert.match((await runSandboxed(t, house, ['perl', '-e', trace])).stdout, /No such process|Operation not permitted/)
  }),

  row('the first process of the sandbox has no root, directory, descriptor or environment of the host', async (t, house) => {
    const { stdout } = await runSandboxed(
      t,
      house,
      sh(
        'ls /proc/1/root; for p in 1 self; do for n in cwd root exe; do readlink /proc/$p/$n; done; done; ls -A /proc/1/cwd/home /proc/1/root/root 2>/dev/null; tr "\\0" "\\n" </proc/1/environ; echo end',
      ),
    )
    assert.match(stdout, /end$/m)
    const root = stdout.split('/')[0]?.trim().split('\n')
    assert.deepEqual(root, [
      'bin',
      'dev',
      'etc',
      'lib',
      ...root!.filter((name) => /^lib./.test(name)),
      'proc',
      'run',
      'sbin',
      'tmp',
      'usr',
      'var',
    ])
    assert.doesNotMatch(stdout, /HOME=|PATH=/)
  }),

  row('a run has no capabilities and cannot gain any, and its system calls are filtered', async (t, house) => {
    const { stdout } = await runSandboxed(
      t,
      house,
      sh('grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status; mount | grep -v nosuid | wc -l'),
    )
    assert.equal(stdout.match(/Cap\w+:\t0000000000000000/g)?.length, 5, stdout)
    assert.match(stdout, /NoNewPrivs:\t1\nSeccomp:\t2\n0\n$/)
  }),

  row('a run cannot mount, create namespaces, change its root or change kernel settings', async (t, house) => {
    const tries = [
      'mount -t tmpfs none /tmp',
      'mount --bind / /tmp',
      'mount -o remount,rw /usr',
      'mount -o remount,rw /proc/sys',
      'umount /proc/sys',
      'umount -l /usr',
      'unshare -U true',
      'unshare -r true',
      'unshare -m true',
      'unshare -n true',
      'nsenter -t 1 -m true',
      'chroot /tmp true',
      'pivot_root /tmp /tmp',
      'echo "|/bin/sh" > /proc/sys/kernel/core_pattern',
      'echo x > /proc/sys/kernel/modprobe',
      'echo 1 > /proc/sys/vm/drop_caches',
      'echo b > /proc/sysrq-trigger',
      'echo /x > /sys/fs/cgroup/release_agent',
      'swapoff -a && false',
      'hostname other',
      'dmesg',
      'head -c 1 /proc/kcore | grep .',
      'head -c 1 /proc/kmsg | grep .',
      'cat /proc/keys | grep .',
      'ls /proc/1/map_files/* 2>/dev/null',
    ]
    const { stdout } = await runSandboxed(
      t,
      house,
      sh(`${tries.map((one, at) => `(${one}) >/dev/null 2>&1 && echo "DONE ${at}"`).join('\n')}\necho end`),
    )
    const done = [...stdout.matchAll(/DONE (\d+)/g)].map(([, at]) => tries[Number(at)])
    assert.deepEqual([done, stdout.endsWith('end\n')], [[], true])
  }),

  row('keyrings and system calls that ordinary programs do not need are refused', async (t, house) => {
    const numbers = Object.values(CALLS).map(([x64, arm64]) => (process.arch === 'x64' ? x64 : arm64))
    const program = `for (${numbers.join(', ')}) { print syscall($_, 0, 0, 0, 0, 0) == -1 && $!{EPERM} ? "refused" : "MADE $_ $!", "\\n" }`
    const { stdout } = await runSandboxed(t, house, ['perl', '-MErrno', '-e', program])
    assert.deepEqual(
      stdout.trim().split('\n'),
      numbers.map(() => 'refused'),
    )
    // clone(2) with a user namespace, and clone3(2), whose flags no filter can read.
    const clone = `print syscall(${process.arch === 'x64' ? 56 : 220}, 0x10000011, 0, 0, 0, 0), $!{EPERM} ? " refused " : "", syscall(435, 0, 0), $!{ENOSYS} ? " unknown" : ""`
    assert.equal((await runSandboxed(t, house, ['perl', '-MErrno', '-e', clone])).stdout, '-1 refused -1 unknown')
  }),

  ...(['group', 'pid_namespace', 'cgroup'] as const).map((choice) =>
    row(
      `${choice}: a process that forks twice into its own session and ignores SIGTERM ends with its run`,
      async (t, house) => {
        const mark = newMark()
        killMarked(t, mark)
        const inner = "trap '' TERM INT HUP; while :; do sleep 0.05; done"
        const { end } = await runSandboxed(
          t,
          house,
          sh(`( MARK=${mark} setsid sh -c "${inner}" >/dev/null 2>&1 </dev/null & ) ; sleep 0.2; exit 3`),
          {
            trees: await cellsOf(t, choice),
          },
        )
        assert.deepEqual([end.code, end.signal, marked(mark)], [3, null, []])
      },
      { skip: choice === 'cgroup' && hostNeeds.cgroup.skip },
    ),
  ),

  row('a run that exceeds its time limit is ended together with all its processes', async (t, house) => {
    const mark = newMark()
    killMarked(t, mark)
    const { end } = await runSandboxed(
      t,
      house,
      sh(`trap '' TERM; MARK=${mark} sh -c "trap '' TERM; while :; do sleep 0.05; done" & while :; do sleep 0.05; done`),
      {
        timeout_ms: 1_000,
      },
    )
    assert.deepEqual([end.signal, end.truncated, marked(mark)], [9, true, []])
  }),

  row('SIGTERM reaches the program, which can end with its own exit status', async (t, house) => {
    const started = await startSandboxed(t, house, sh("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done"))
    assert.ok(!('failed' in started))
    await until(() => started.stdout().includes('ready'))
    started.process.terminate()
    const end = await started.process.ended
    assert.deepEqual([end.code, started.stdout()], [7, 'ready\nbye\n'])
  }),

  row('SIGKILL of the process that started a sandbox ends all processes in it', async (t, house) => {
    const mark = newMark()
    killMarked(t, mark)
    const program = fileURLToPath(new URL('../../test/support/sandbox-program.ts', import.meta.url))
    const child = spawn(process.execPath, [program, house.home, house.project, mark, JSON.stringify(house.form)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    t.after(() => child.kill('SIGKILL'))
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string]
    assert.equal(line, 'ready')
    await until(() => marked(mark).length > 0)
    child.kill('SIGKILL')
    await until(() => marked(mark).length === 0)
  }),
]
